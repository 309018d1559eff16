"""Theorem 3.2: the bound, that it is reached, and the rate from a trace."""

from __future__ import annotations

import math

import numpy as np
import pytest

from scar import theory
from scar.errors import InvalidRequest


def iterations(c: float, start: float, epsilon: float, perturbations: dict[int, float]) -> int:
    """Iterations of the worst case on a line: the error shrinks by c, each perturbation points away from
    the solution.
    """
    error, count = start, 0
    while error >= epsilon:
        error = c * (error + perturbations.get(count, 0.0))
        count += 1
    return count


@pytest.mark.parametrize("perturbations", [{}, {10: 0.5}, {0: 1.0, 20: 0.3, 21: 0.01}, {40: 3.0}])
def test_the_bound_holds_and_is_reached_by_the_worst_case(perturbations: dict[int, float]) -> None:
    c, start, epsilon = 0.9, 2.0, 1e-4
    cost = iterations(c, start, epsilon, perturbations) - iterations(c, start, epsilon, {})
    bound = theory.iteration_cost(c, perturbations, start)
    assert cost - 1 <= bound <= cost + 1  # whole iterations against a real number


def test_bound_against_the_formula() -> None:
    c, start = 0.95, 4.0
    delta = c**-3 * 0.5 + c**-7 * 0.25
    assert theory.iteration_cost(c, {3: 0.5, 7: 0.25}, start) == pytest.approx(
        math.log(1 + delta / start) / math.log(1 / c)
    )
    assert theory.iteration_cost(c, {}, start) == 0.0
    assert theory.iteration_cost(c, {5: 0.0}, start) == 0.0


def test_late_perturbations_do_not_overflow() -> None:
    late = theory.iteration_cost(0.5, {5000: 1.0}, 1.0)
    assert late == pytest.approx(5000, abs=1e-6)


def test_rate_of_an_exact_and_of_a_noisy_trace() -> None:
    exact = 3.0 * 0.93 ** np.arange(50)
    assert theory.estimate_rate(exact.tolist()) == pytest.approx(0.93)
    noisy = exact * np.exp(np.random.default_rng(1).normal(0, 0.05, 50))
    assert theory.estimate_rate(noisy.tolist()) == pytest.approx(0.93, abs=0.005)
    assert theory.step_rate(exact.tolist()) == pytest.approx(0.93)
    slowing = [1.0, 0.5, 0.4, 0.36]
    assert theory.step_rate(slowing) == pytest.approx(0.9)


def test_rate_of_gradient_descent_on_a_quadratic() -> None:
    curvature, step = np.array([1.0, 0.2]), 0.5
    x, trace = np.array([1.0, 1.0]), []
    for _ in range(200):
        trace.append(float(np.linalg.norm(x)))
        x = x - step * curvature * x
    assert theory.estimate_rate(trace) == pytest.approx(1 - step * 0.2, abs=1e-3)


def test_zeros_at_the_end_are_left_out() -> None:
    assert theory.estimate_rate([4.0, 2.0, 1.0, 0.0, 0.0]) == pytest.approx(0.5)


@pytest.mark.parametrize("trace", [[1.0], [1.0, 2.0, 4.0], [0.0, 1.0], [1.0, math.nan]])
def test_traces_without_a_rate_are_refused(trace: list[float]) -> None:
    with pytest.raises(InvalidRequest):
        theory.estimate_rate(trace)
    with pytest.raises(InvalidRequest):
        theory.step_rate(trace)


def test_impossible_arguments_are_refused() -> None:
    for rate in (0.0, 1.0, -0.5, math.nan):
        with pytest.raises(InvalidRequest):
            theory.iteration_cost(rate, {1: 1.0}, 1.0)
    for perturbations, start in (({1: -1.0}, 1.0), ({1: math.inf}, 1.0), ({-1: 1.0}, 1.0), ({1: 1.0}, 0.0)):
        with pytest.raises(InvalidRequest):
            theory.iteration_cost(0.5, perturbations, start)
