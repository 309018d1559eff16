"""Traces of pushes, rounds and recoveries across services, for who asks for them (SCAR_TRACES).

An *operation* is what goes on in several threads or after the call that began it: ``("round", 7)``. Without
traces nothing of OpenTelemetry is imported, no call is wrapped, and every function here returns at once.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import grpc

from scar.errors import ConfigError
from scar.wire.interception import intercept_channels

VARIABLE = "SCAR_TRACES"
Operation = tuple[str, int | str]  # its kind, and which one


class Tracer(Protocol):
    """Such as :class:`scar.wire.otel.OtelTracer`."""

    def trace_span(
        self, name: str, under: Iterable[Operation], age: float
    ) -> AbstractContextManager[None]: ...

    def begin_operation(self, operation: Operation, name: str, under: Iterable[Operation]) -> None: ...

    def join_operation(self, operation: Operation) -> AbstractContextManager[None]: ...

    def remember_operation(self, operation: Operation) -> None: ...

    def end_operation(self, operation: Operation) -> None: ...

    def wrap_channel(self, channel: grpc.Channel) -> grpc.Channel: ...

    def server_interceptor(self) -> grpc.ServerInterceptor: ...

    def close(self) -> None: ...


_NOTHING: AbstractContextManager[None] = nullcontext()
_tracer: Tracer | None = None


def start_tracing(receiver: str, role: str, member: str, incarnation: str) -> None:
    """Send spans of this process to ``receiver``, a URL of OTLP over gRPC; empty: none.

    Call it before channels and servers are made; what has begun goes on. Raises :class:`ConfigError` when the
    package is missing.
    """
    global _tracer
    if not receiver or _tracer is not None:
        return
    try:
        from scar.wire.otel import OtelTracer
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"traces need the package {error.name}", "Run: pip install 'scar-ps[otel]', or unset SCAR_TRACES"
        ) from error
    _tracer = OtelTracer(receiver, role, member, incarnation)
    intercept_channels(_tracer.wrap_channel)


def start_from_environment(role: str, member: str, incarnation: str) -> None:
    """For a program that is no service: to the receiver of SCAR_TRACES, if it is set, until the program ends.
    Raises as :func:`start_tracing`.
    """
    receiver = os.environ.get(VARIABLE, "")
    if receiver and _tracer is None:
        start_tracing(receiver, role, member, incarnation)
        atexit.register(stop_tracing)


def stop_tracing() -> None:
    """Send what is left, for a few seconds at most."""
    global _tracer
    tracer, _tracer = _tracer, None
    if tracer is not None:
        intercept_channels(None)
        tracer.close()


def is_on() -> bool:
    return _tracer is not None


def server_interceptors() -> list[grpc.ServerInterceptor]:
    return [] if _tracer is None else [_tracer.server_interceptor()]


def trace_span(name: str, *under: Operation, age: float = 0.0) -> AbstractContextManager[None]:
    """As long as it lasts, below the first of ``under`` that is known, else below what this thread does.

    ``age``: seconds ago that it began.
    """
    return _NOTHING if _tracer is None else _tracer.trace_span(name, under, age)


def begin_operation(operation: Operation, name: str, *under: Operation) -> None:
    """A span that lasts until :func:`end_operation`. One that has begun goes on."""
    if _tracer is not None:
        _tracer.begin_operation(operation, name, under)


def join_operation(operation: Operation) -> AbstractContextManager[None]:
    """What this thread does is part of it."""
    return _NOTHING if _tracer is None else _tracer.join_operation(operation)


def remember_operation(operation: Operation) -> None:
    """That it belongs to what this thread does now."""
    if _tracer is not None:
        _tracer.remember_operation(operation)


def end_operation(operation: Operation) -> None:
    """With those of its kind that have a lower number: it has taken their place."""
    if _tracer is not None:
        _tracer.end_operation(operation)
