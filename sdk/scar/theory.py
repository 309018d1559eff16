"""What a failure costs, after the paper: Theorem 3.2 and the numbers that go into it. Pure arithmetic.

An algorithm that comes closer to the solution by a factor ``c`` in each iteration, 0 < c < 1, forgets a perturbation at the
same rate. *Iteration cost* is the number of extra iterations to come within epsilon of the solution:

    cost <= log(1 + Delta / ||x(0) - x*||) / log(1 / c),    Delta = sum over perturbations of c^-l ||delta_l||

    rate = theory.estimate_rate(distances)
    theory.iteration_cost(rate, {47: norm_of_delta}, distances[0])

While a job runs, the solution is not known; :class:`Observer` estimates both c and the distance from the length of the steps.
Numbers of theorems and examples are those of seed 000 (the paper's first version).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from scar.errors import InvalidRequest


def iterations_to(rate: float, start: float, epsilon: float) -> float:
    """Iterations after which an unperturbed run is within ``epsilon`` of the solution, from a distance of ``start``.

    Negative when it starts inside.
    """
    _check_rate(rate)
    return math.log(start / epsilon) / math.log(1 / rate)


def iteration_cost(rate: float, perturbations: Mapping[int, float], start: float) -> float:
    """Upper bound on the iteration cost, in iterations (Theorem 3.2); some perturbations reach it.

    ``perturbations``: iteration -> norm of what was changed before it was run (its expectation); ``start``: ||x(0) - x*||, in
    the same norm.
    """
    _check_rate(rate)
    if not (math.isfinite(start) and start > 0):
        raise InvalidRequest(f"the distance from the start to the solution must be positive, not {start}")
    if any(norm < 0 or not math.isfinite(norm) or iteration < 0 for iteration, norm in perturbations.items()):
        raise InvalidRequest("perturbations need iterations from 0 and finite norms from 0")
    # c^-l leaves the range of a float within some hundred iterations, its logarithm does not.
    logs = [math.log(norm / start) + iteration * math.log(1 / rate) for iteration, norm in perturbations.items() if norm > 0]
    return float(np.logaddexp.reduce([0.0, *logs])) / math.log(1 / rate)


def irreducible_error(rate: float, size: float) -> float:
    """c / (1 - c) * Delta: no run comes closer whose every iteration is perturbed by ``size`` = E||delta|| (Example 3.3)."""
    _check_rate(rate)
    return rate / (1 - rate) * size


def endless_cost(rate: float, size: float, start: float, epsilon: float) -> float:
    """Upper bound on the iteration cost when **every** iteration is perturbed by at most ``size`` (appendix B.1, eq. 14).

    ``start``: ||x(0) - x*||. Infinite when the floor, :func:`irreducible_error`, is not below ``epsilon``; raises
    :class:`InvalidRequest` when the run starts below the floor, where the bound says nothing.
    """
    floor = irreducible_error(rate, size)
    if not (math.isfinite(start) and start > floor):
        raise InvalidRequest(f"the bound needs a start above the floor {floor:g}, not {start}")
    if epsilon <= floor:
        return math.inf
    return math.log((1 - floor / start) / (1 - floor / epsilon)) / math.log(1 / rate)


def sgd_errors(
    alphas: Sequence[float], gradient: float, perturbations: Mapping[int, float], start: float
) -> NDArray[np.float64]:
    """Bounds on E||y(k) - x*|| for k = 0 .. len(alphas), for steps that shrink (appendix B.2), float64[len(alphas) + 1].

    ``alphas[k - 1]`` is alpha_k, ``gradient`` is G. Unrolled, the recursion is the paper's
    a_k [start + sum of (||delta_l|| + alpha_l^2 G^2) / a_l] with a_k = (1 - alpha_1) ... (1 - alpha_k), without its overflow.
    """
    if any(not 0 <= alpha < 1 for alpha in alphas):
        raise InvalidRequest("each alpha must lie in [0, 1)")
    errors = np.empty(len(alphas) + 1, dtype=np.float64)
    errors[0] = start + perturbations.get(0, 0.0)
    for k, alpha in enumerate(alphas, 1):
        errors[k] = (1 - alpha) * errors[k - 1] + perturbations.get(k, 0.0) + (alpha * gradient) ** 2
    return errors


def sgd_cost(
    alphas: Sequence[float], gradient: float, perturbations: Mapping[int, float], start: float, epsilon: float
) -> float:
    """Iteration cost by the implicit formula of appendix B.2: iterations to ``epsilon`` with perturbations minus those without.

    Infinite when the perturbed bound does not come below ``epsilon`` within the given ``alphas``.
    """
    reached = [
        np.flatnonzero(sgd_errors(alphas, gradient, suffered, start)[max(suffered, default=0) :] < epsilon)
        for suffered in (perturbations, {})
    ]
    if not all(len(found) for found in reached):
        return math.inf
    return float(reached[0][0] + max(perturbations, default=0) - reached[1][0])


def estimate_rate(distances: Sequence[float]) -> float:
    """``c`` from a trace of ||x(k) - x*||, k = 0, 1, ...: the slope of its logarithm by least squares.

    Points from the first zero on are left out. Raises :class:`InvalidRequest` for a trace that does not shrink.
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


def enclosing_rate(distances: Sequence[float]) -> float:
    """The smallest ``c`` with ||x(k) - x*|| <= c^k ||x(0) - x*|| on the whole trace.

    Never below what the trace shows, as a fit may be: take it where the bound must hold.
    """
    trace = np.asarray(distances, dtype=np.float64)
    if len(trace) < 2 or not np.isfinite(trace).all() or trace[0] <= 0:
        raise InvalidRequest("a rate needs a trace of at least two finite distances, the first positive")
    steps = np.arange(1, len(trace))
    rate = float(((np.maximum(trace[1:], 0.0) / trace[0]) ** (1.0 / steps)).max())
    if not 0 < rate < 1:
        raise InvalidRequest("the distances do not stay below the first, so there is no rate below 1")
    return rate


def step_rate(distances: Sequence[float]) -> float:
    """The smallest ``c`` with ||x(k + 1) - x*|| <= c ||x(k) - x*|| in every step of the trace: assumption (3) as it stands.

    Never below :func:`enclosing_rate`; take it for runs that slow down on their way, as gradient descent does without strong
    convexity.
    """
    trace = np.asarray(distances, dtype=np.float64)
    if len(trace) < 2 or not np.isfinite(trace).all() or (trace[:-1] <= 0).any():
        raise InvalidRequest("a rate needs a trace of at least two finite distances, positive except for the last")
    rate = float((trace[1:] / trace[:-1]).max())
    if not 0 < rate < 1:
        raise InvalidRequest("the distances do not shrink in every step, so there is no rate below 1")
    return rate


class Observer:
    """Estimates c, ||x(k) - x*|| and ||x(0) - x*|| while a job runs, from ||x(k + 1) - x(k)|| alone. O(1) memory.

    Under linear convergence steps shrink by c as distances do, so c is the slope of their logarithm (least squares in which
    ``memory`` < 1 weighs each older step less), and what is still to go is the geometric series step * c / (1 - c).
    """

    def __init__(self, memory: float = 0.97) -> None:
        self._memory = memory
        self._sums = np.zeros(5)  # of weight, k, k^2, log step, k log step
        self._steps, self._last, self._way = 0, 0.0, 0.0

    def observe(self, step: float) -> None:
        """``step``: ||x(k + 1) - x(k)||, in the norm of the perturbations. Raises :class:`InvalidRequest`."""
        if not (math.isfinite(step) and step >= 0):
            raise InvalidRequest(f"a step must be finite and at least 0, not {step}")
        if step > 0:
            k, log = float(self._steps), math.log(step)
            self._sums = self._memory * self._sums + np.array([1.0, k, k * k, log, k * log])
            self._last = step
        self._steps += 1
        self._way += step

    @property
    def rate(self) -> float | None:
        """c; None before two steps, or while steps do not shrink."""
        weight, k, squares, log, mixed = self._sums.tolist()
        spread = weight * squares - k * k
        if spread <= 1e-9 * max(1.0, squares):
            return None
        slope = (weight * mixed - k * log) / spread
        return math.exp(slope) if slope < 0 else None

    @property
    def distance(self) -> float | None:
        """||x(k) - x*|| after the newest step."""
        return None if self.rate is None else self._last * self.rate / (1 - self.rate)

    @property
    def start(self) -> float | None:
        """||x(0) - x*||: the way so far and what is still to go. The triangle inequality makes it an upper estimate."""
        return None if self.distance is None else self._way + self.distance

    def predict(self, norm: float) -> float | None:
        """Predicted iteration cost of a perturbation of this norm now (Theorem 3.2); None while nothing can be said.

        c^-T ||delta|| / ||x(0) - x*|| is ||delta|| over the distance that is left, so the present stands for the start.
        """
        if self.rate is None or not self.distance:
            return None
        return iteration_cost(self.rate, {0: norm}, self.distance)


def _check_rate(rate: float) -> None:
    if not 0 < rate < 1:
        raise InvalidRequest(f"the rate c must lie between 0 and 1, not {rate}")
