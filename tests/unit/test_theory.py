"""Theorem 3.2: the bound, that it is reached, and the rate from a trace."""

from __future__ import annotations

import math

import numpy as np
import pytest

from scar import theory
from scar.errors import InvalidRequest


def iterations(c: float, start: float, epsilon: float, perturbations: dict[int, float]) -> int:
    """Iterations of the worst case on a line: the error shrinks by c, each perturbation points away from the solution."""
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
    assert theory.iteration_cost(c, {3: 0.5, 7: 0.25}, start) == pytest.approx(math.log(1 + delta / start) / math.log(1 / c))
    assert theory.iteration_cost(c, {}, start) == 0.0
    assert theory.iteration_cost(c, {5: 0.0}, start) == 0.0


def test_late_perturbations_do_not_overflow() -> None:
    late = theory.iteration_cost(0.5, {5000: 1.0}, 1.0)
    assert late == pytest.approx(5000, abs=1e-6)


def test_iterations_to_epsilon() -> None:
    assert theory.iterations_to(0.5, 8.0, 1.0) == pytest.approx(3)
    assert theory.iterations_to(0.5, 1.0, 2.0) == pytest.approx(-1)


def test_rate_of_an_exact_and_of_a_noisy_trace() -> None:
    exact = 3.0 * 0.93 ** np.arange(50)
    assert theory.estimate_rate(exact.tolist()) == pytest.approx(0.93)
    assert theory.enclosing_rate(exact.tolist()) == pytest.approx(0.93)
    noisy = exact * np.exp(np.random.default_rng(1).normal(0, 0.05, 50))
    assert theory.estimate_rate(noisy.tolist()) == pytest.approx(0.93, abs=0.005)
    enclosing = theory.enclosing_rate(noisy.tolist())
    assert (noisy <= noisy[0] * enclosing ** np.arange(50) * (1 + 1e-12)).all()
    assert theory.step_rate(exact.tolist()) == pytest.approx(0.93)
    slowing = [1.0, 0.5, 0.4, 0.36]
    assert theory.step_rate(slowing) == pytest.approx(0.9)
    assert theory.enclosing_rate(slowing) < theory.step_rate(slowing)


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
        theory.enclosing_rate(trace)
    with pytest.raises(InvalidRequest):
        theory.step_rate(trace)


def test_impossible_arguments_are_refused() -> None:
    for rate in (0.0, 1.0, -0.5, math.nan):
        with pytest.raises(InvalidRequest):
            theory.iteration_cost(rate, {1: 1.0}, 1.0)
    for perturbations, start in (({1: -1.0}, 1.0), ({1: math.inf}, 1.0), ({-1: 1.0}, 1.0), ({1: 1.0}, 0.0)):
        with pytest.raises(InvalidRequest):
            theory.iteration_cost(0.5, perturbations, start)


def test_a_run_that_is_perturbed_for_ever_stops_at_the_floor() -> None:
    c, size, start = 0.8, 0.01, 5.0
    error, count, epsilon = start, 0, 0.1
    while error >= epsilon:
        error, count = c * (error + size), count + 1
    bound = theory.endless_cost(c, size, start, epsilon)
    assert count - 1 <= theory.iterations_to(c, start, epsilon) + bound <= count + 1
    for _ in range(500):
        error = c * (error + size)
    assert error == pytest.approx(theory.irreducible_error(c, size))
    assert theory.endless_cost(c, size, start, theory.irreducible_error(c, size)) == math.inf
    assert theory.endless_cost(c, 0.0, start, epsilon) == 0.0
    with pytest.raises(InvalidRequest):
        theory.endless_cost(c, 100.0, start, 1e9)


def test_sgd_recursion_is_the_closed_form_of_the_appendix() -> None:
    alphas = [0.5 / (k + 1) for k in range(40)]
    suffered, gradient, start = {3: 0.7, 9: 0.2}, 0.4, 2.0
    a = np.cumprod([1.0, *(1 - alpha for alpha in alphas)])
    terms = np.array([0.0] + [suffered.get(k, 0.0) + (alpha * gradient) ** 2 for k, alpha in enumerate(alphas, 1)])
    closed = a * (start + np.cumsum(terms / a))
    np.testing.assert_allclose(theory.sgd_errors(alphas, gradient, suffered, start), closed)


def test_sgd_forgets_slowly() -> None:
    alphas = [1.0 / (k + 2) for k in range(4000)]
    cost = theory.sgd_cost(alphas, 0.0, {50: 0.1}, 1.0, 0.005)
    # With alpha = 1/k errors fall as 1/k: a perturbation by delta at T adds T * delta to the start, for ever.
    assert cost == pytest.approx(51 * 0.1 / 0.005, rel=0.05)
    assert theory.sgd_cost(alphas, 0.0, {}, 1.0, 0.005) == 0
    assert theory.sgd_cost(alphas[:100], 0.0, {50: 0.1}, 1.0, 0.005) == math.inf
    with pytest.raises(InvalidRequest):
        theory.sgd_errors([1.0], 0.0, {}, 1.0)


def test_observer_finds_rate_and_distances_without_the_solution() -> None:
    curvature, x = np.array([1.0, 0.1, 0.1]), np.array([0.2, 3.0, -4.0])
    start, observer = float(np.linalg.norm(x)), theory.Observer()
    assert observer.predict(1.0) is None
    for _ in range(120):
        moved = x * (1 - 0.5 * curvature)
        observer.observe(float(np.linalg.norm(moved - x)))
        x = moved
    assert observer.rate == pytest.approx(0.95, abs=1e-3)
    assert observer.distance == pytest.approx(float(np.linalg.norm(x)), rel=0.03)
    assert observer.start == pytest.approx(start, rel=0.05)
    predicted = observer.predict(float(np.linalg.norm(x)))
    assert predicted == pytest.approx(math.log(2) / math.log(1 / 0.95), rel=0.05), "as far again: a doubling"


def test_observer_says_nothing_about_steps_that_do_not_shrink() -> None:
    observer = theory.Observer()
    for step in (1.0, 2.0, 4.0, 0.0):
        observer.observe(step)
    assert observer.rate is None
    assert observer.start is None
    with pytest.raises(InvalidRequest):
        observer.observe(math.nan)
