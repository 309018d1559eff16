"""What a failure costs, after the paper: Theorem 3.2 and the numbers that go into it. Pure arithmetic.

An algorithm that comes closer to the solution by a factor ``c`` in each iteration, 0 < c < 1, forgets a
perturbation at the same rate. *Iteration cost* is the number of extra iterations to come within epsilon of
the solution:

    cost <= log(1 + Delta / ||x(0) - x*||) / log(1 / c),    Delta = sum over perturbations of c^-l ||delta_l||

    rate = theory.estimate_rate(distances)
    theory.iteration_cost(rate, {47: norm_of_delta}, distances[0])

Numbers of theorems and examples are those of seed 000 (the paper's first version).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from scar.errors import InvalidRequest


def iteration_cost(rate: float, perturbations: Mapping[int, float], start: float) -> float:
    """Upper bound on the iteration cost, in iterations (Theorem 3.2); some perturbations reach it.

    ``perturbations``: iteration -> norm of what was changed before it was run (its expectation); ``start``:
    ||x(0) - x*||, in the same norm.
    """
    _check_rate(rate)
    if not (math.isfinite(start) and start > 0):
        raise InvalidRequest(f"the distance from the start to the solution must be positive, not {start}")
    if any(norm < 0 or not math.isfinite(norm) or iteration < 0 for iteration, norm in perturbations.items()):
        raise InvalidRequest("perturbations need iterations from 0 and finite norms from 0")
    # c^-l leaves the range of a float within some hundred iterations, its logarithm does not.
    logs = [
        math.log(norm / start) + iteration * math.log(1 / rate)
        for iteration, norm in perturbations.items()
        if norm > 0
    ]
    return float(np.logaddexp.reduce([0.0, *logs])) / math.log(1 / rate)


def estimate_rate(distances: Sequence[float]) -> float:
    """``c`` from a trace of ||x(k) - x*||, k = 0, 1, ...: the slope of its logarithm by least squares.

    Points from the first zero on are left out. Raises :class:`InvalidRequest` for a trace that does not
    shrink.
    """
    trace = np.asarray(distances, dtype=np.float64)
    zeros = np.flatnonzero(trace <= 0)
    trace = trace[: zeros[0]] if len(zeros) else trace
    if len(trace) < 2 or not np.isfinite(trace).all():
        raise InvalidRequest("a rate needs a trace of at least two finite, positive distances")
    slope = float(np.polynomial.polynomial.polyfit(np.arange(len(trace)), np.log(trace), 1)[1])
    if slope >= 0:
        raise InvalidRequest("the distances do not shrink, so there is no rate below 1")
    return math.exp(slope)


def step_rate(distances: Sequence[float]) -> float:
    """The smallest ``c`` with ||x(k + 1) - x*|| <= c ||x(k) - x*|| in every step of the trace: assumption (3)
    as it stands.

    Never below what the trace shows, as a fit may be: take it where the bound must hold, and for runs that
    slow down on their way, as gradient descent does without strong convexity.
    """
    trace = np.asarray(distances, dtype=np.float64)
    if len(trace) < 2 or not np.isfinite(trace).all() or (trace[:-1] <= 0).any():
        raise InvalidRequest(
            "a rate needs a trace of at least two finite distances, positive except for the last"
        )
    rate = float((trace[1:] / trace[:-1]).max())
    if not 0 < rate < 1:
        raise InvalidRequest("the distances do not shrink in every step, so there is no rate below 1")
    return rate


def _check_rate(rate: float) -> None:
    if not 0 < rate < 1:
        raise InvalidRequest(f"the rate c must lie between 0 and 1, not {rate}")
