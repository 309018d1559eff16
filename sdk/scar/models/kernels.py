"""Loops that numpy cannot express, compiled by numba. It is optional: the models that need it say so when
they are used.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from scar.errors import ConfigError

F = TypeVar("F", bound=Callable[..., Any])


def compile_loop(*, fastmath: bool = False) -> Callable[[F], F]:
    """Compile a function at its first call; the machine code is kept beside the source for the next
    process.
    """

    def decorate(function: F) -> F:
        machine: list[Callable[..., Any]] = []

        @wraps(function)
        def call(*arguments: Any) -> Any:
            if not machine:
                machine.append(_compile_loop(function, fastmath))
            return machine[0](*arguments)

        return call  # type: ignore[return-value]

    return decorate


def _compile_loop(function: Callable[..., Any], fastmath: bool) -> Callable[..., Any]:
    try:
        import numba
    except ImportError as error:
        raise ConfigError("this model needs numba", "Run: pip install 'scar-ps[models]'") from error
    built: Callable[..., Any] = numba.njit(function, fastmath=fastmath, cache=True, nogil=True)
    return built
