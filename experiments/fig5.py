"""Figure 5: MLR, one perturbation at iteration 50, random or adversarial, against the bound of Theorem 3.2.

x* stands for the iterate after ten times the iterations of the figure, c is the slowest step of the
undisturbed run. *Adversarial* is away from x*, along the line through both.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import product

import numpy as np

from experiments import bounds
from experiments.panels import chosen_panels, panel_title
from experiments.perturbation import (
    FAILURE,
    SIZES,
    PerturbationSetting,
    UndisturbedPath,
    flatten_state,
    run_perturbed,
    state_with_values,
)
from experiments.simulation import ModelState
from scar_compare.experiment import ExperimentOptions, ExperimentReport, TrialBatch
from scar_compare.records import TrialRecord
from scar_compare.trial_plans import recorded_as

NAME = "fig5"
PANELS = ("mlr-mnist",)
KINDS = {"random": "random direction", "adversarial": "away from x*"}
BATCH = 50


def plan_batches(options: ExperimentOptions) -> list[TrialBatch]:
    trials = options.trials or (20 if options.quick else 100)
    numbers = [tuple(range(first, min(first + BATCH, trials))) for first in range(0, trials, BATCH)]
    found = []
    for panel, kind in product(_wanted_panels(options), KINDS):
        setting = PerturbationSetting(panel, 20 if options.quick else 1, options.seed)
        found += [
            TrialBatch(
                _panel_name(panel, kind), some, partial(run_perturbed, setting, partial(_perturb_state, kind))
            )
            for some in numbers
        ]
    return found


def _wanted_panels(options: ExperimentOptions) -> tuple[str, ...]:
    return chosen_panels(options.panels, PANELS, ("mlr",))


def _panel_name(panel: str, kind: str) -> str:
    return f"{panel} {kind}"


@recorded_as("_strike")
def _perturb_state(kind: str, path: UndisturbedPath, random: np.random.Generator) -> ModelState:
    """A perturbation of a random size, relative to the distance from the solution."""
    x = flatten_state(path.state)
    direction = random.normal(size=x.shape) if kind == "random" else x - path.solution
    size = 10 ** random.uniform(*SIZES) * np.linalg.norm(x - path.solution)
    return state_with_values(path.state, x + direction * (size / np.linalg.norm(direction)))


def make_report(options: ExperimentOptions, records: Sequence[TrialRecord]) -> ExperimentReport:
    """Costs against ||delta|| / ||x(0) - x*||."""
    shown = {
        _panel_name(panel, kind): f"{panel_title(panel)}, {KINDS[kind]}"
        for panel, kind in product(_wanted_panels(options), KINDS)
    }
    return bounds.bounds_report(
        records, shown, "‖δ‖ / ‖x(0) − x*‖", f"One perturbation at iteration {FAILURE}"
    )
