"""What a push does to values: one vectorised step of a table's rule, in place.

Arrays are flat (elements of several blocks side by side) or matrices with a block per row. They are small enough for
temporaries to stay in the cache; ``pushed`` is not written to: it lies in the message that brought it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from scar.blocks import Array
from scar.tables import Rule

Real = Any  # a float array; numpy's generic scalar type has no arithmetic for the type checker
Counts = Any  # steps taken by each block, this one included: one int, or an array that broadcasts against the values
Parameters = Mapping[str, float]


def counts_steps(rule: Rule) -> bool:
    """True when the rule needs to know how many steps a block has taken."""
    return rule.kind == "adam"


def slowed(rule: Rule, rate: float) -> Rule:
    """The rule with its learning rate, if it has one, times ``rate``."""
    if rate == 1 or "lr" not in rule.parameters:
        return rule
    return Rule(rule.kind, {**rule.parameters, "lr": rule.parameters["lr"] * rate})


def step(rule: Rule, values: Array, pushed: Array, slots: Mapping[str, Array], counts: Counts = 1) -> None:
    """One step of ``rule`` on ``values`` and ``slots`` (same shape as ``pushed``)."""
    _STEPS[rule.kind](rule.parameters, values, pushed, slots, counts)


def _assign(_: Parameters, values: Real, pushed: Real, _slots: Mapping[str, Real], _counts: Counts) -> None:
    values[...] = pushed


def _add(_: Parameters, values: Real, pushed: Real, _slots: Mapping[str, Real], _counts: Counts) -> None:
    values += pushed


def _sgd(parameters: Parameters, values: Real, pushed: Real, _slots: Mapping[str, Real], _counts: Counts) -> None:
    values -= np.multiply(pushed, parameters["lr"])


def _momentum(parameters: Parameters, values: Real, pushed: Real, slots: Mapping[str, Real], _counts: Counts) -> None:
    velocity = slots["velocity"]
    velocity *= parameters["momentum"]
    velocity += pushed
    values -= np.multiply(velocity, parameters["lr"])


def _adagrad(parameters: Parameters, values: Real, pushed: Real, slots: Mapping[str, Real], _counts: Counts) -> None:
    squares = slots["squares"]
    scale = np.multiply(pushed, pushed)
    squares += scale
    np.sqrt(squares, out=scale)
    scale += parameters["eps"]
    move = np.multiply(pushed, parameters["lr"])
    move /= scale
    values -= move


def _adam(parameters: Parameters, values: Real, pushed: Real, slots: Mapping[str, Real], counts: Counts) -> None:
    first, second = slots["first"], slots["second"]
    beta1, beta2 = parameters["beta1"], parameters["beta2"]
    move = np.multiply(pushed, 1 - beta1)
    first *= beta1
    first += move
    scale = np.multiply(pushed, pushed)
    scale *= 1 - beta2
    second *= beta2
    second += scale
    np.divide(second, _unbiased(beta2, counts, values), out=scale)
    np.sqrt(scale, out=scale)
    scale += parameters["eps"]
    np.divide(first, _unbiased(beta1, counts, values), out=move)
    move *= parameters["lr"]
    move /= scale
    values -= move


def _unbiased(beta: float, counts: Counts, like: Real) -> Any:
    """1 - beta^count in the dtype of the values, so that float32 tables stay in float32."""
    return like.dtype.type(1 - beta**counts) if isinstance(counts, int) else (1 - beta**counts).astype(like.dtype)


_STEPS: dict[str, Callable[[Parameters, Any, Any, Mapping[str, Any], Counts], None]] = {
    "assign": _assign,
    "add": _add,
    "sgd": _sgd,
    "momentum": _momentum,
    "adagrad": _adagrad,
    "adam": _adam,
}
