"""Figure 3: gradient descent on a quadratic program, perturbed at random; the bound is tight.

(a) one perturbation halfway, (b) twenty at random iterations; normal directions, sizes over three decades.
The start lies in the direction of slowest convergence: there assumption (3) is an equality, as the remark on
tightness asks, and kappa(x, epsilon) is what is measured instead of a bound of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from experiments import bounds
from scar import theory
from scar_compare.experiment import ExperimentOptions, ExperimentReport, TrialBatch
from scar_compare.records import TrialRecord
from scar_compare.trial_plans import recorded_as

NAME = "fig3"
TITLES = {"single": "one perturbation at iteration 500", "many": "20 perturbations at random iterations"}
CURVATURES = np.array([1.0, 0.5, 0.2, 0.05])
STEP = 0.2
ITERATIONS = 1000
FAILURE = 500
MANY = 20
BATCH = 250


def plan_batches(options: ExperimentOptions) -> list[TrialBatch]:
    trials = options.trials or 1000
    numbers = [tuple(range(first, min(first + BATCH, trials))) for first in range(0, trials, BATCH)]
    return [
        TrialBatch(panel, some, partial(_run_trials, panel, options.seed))
        for panel in TITLES
        for some in numbers
    ]


@recorded_as("_carry_out")
def _run_trials(panel: str, seed: int, trials: tuple[int, ...]) -> Iterator[TrialRecord]:
    """All these trials at once: iterates (trials, 4); x* is the origin."""
    contraction = 1 - STEP * CURVATURES
    rate = float(contraction.max())
    start = np.zeros(4)
    start[int(contraction.argmax())] = 1.0
    epsilon = rate ** (ITERATIONS - 0.5)  # between two iterations, so that rounding decides nothing
    perturbations = [
        _draw_perturbations(panel, np.random.default_rng([seed, number]), rate) for number in trials
    ]
    reached = _first_reached(start, contraction, perturbations, epsilon)
    for number, suffered, iterations in zip(trials, perturbations, reached, strict=True):
        norms = {at: float(np.linalg.norm(delta)) for at, delta in suffered.items()}
        size = float(sum(norm * rate**-at for at, norm in norms.items()))
        bound = theory.iteration_cost(rate, norms, 1.0)
        yield {
            "trial": number,
            "size": size,
            "cost": int(iterations) - ITERATIONS,
            "bound": bound,
            "holds": True,
        }


def _draw_perturbations(
    panel: str, random: np.random.Generator, rate: float
) -> dict[int, NDArray[np.float64]]:
    """Iteration -> delta. Sizes are relative to the undisturbed distance of that iteration."""
    places = (
        [FAILURE]
        if panel == "single"
        else sorted(random.choice(ITERATIONS - 100, MANY, replace=False).tolist())
    )
    scale = 10 ** random.uniform(-2, 1)
    return {at: random.normal(size=4) * scale * rate**at / 2 for at in places}


def _first_reached(
    start: NDArray[np.float64],
    contraction: NDArray[np.float64],
    perturbations: Sequence[dict[int, NDArray[np.float64]]],
    epsilon: float,
) -> NDArray[np.int64]:
    """First iteration after the last perturbation at which each run is within ``epsilon``."""
    y = np.tile(start, (len(perturbations), 1))
    last = np.array([max(suffered) for suffered in perturbations])
    reached = np.full(len(perturbations), -1)
    k = 0
    while (reached < 0).any():
        near = np.linalg.norm(y, axis=1) < epsilon
        reached[near & (k > last) & (reached < 0)] = k
        for row, suffered in enumerate(perturbations):
            if k in suffered:
                y[row] += suffered[k]
        y *= contraction
        k += 1
    return reached


def make_report(_options: ExperimentOptions, records: Sequence[TrialRecord]) -> ExperimentReport:
    """Costs against the discounted sum of the perturbations."""
    return bounds.bounds_report(
        records, TITLES, "Δ_T / ‖x(0) − x*‖", "Gradient descent on a 4-D quadratic program"
    )
