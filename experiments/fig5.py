"""Figure 5: MLR, one perturbation at iteration 50, random or adversarial, against the bound of Theorem 3.2.

x* stands for the iterate after ten times the iterations of the figure, c is the slowest step of the undisturbed run.
*Adversarial* is away from x*, along the line through both.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import product

import numpy as np

from experiments import bounds
from experiments.panels import chosen, title
from experiments.perturbed import FAILURE, SIZES, Path, Setting, carry_out, flat, moved
from experiments.records import Record
from experiments.runner import Batch, Options, Report
from experiments.simulation import State

NAME = "fig5"
PANELS = ("mlr-mnist",)
KINDS = {"random": "random direction", "adversarial": "away from x*"}
BATCH = 50


def batches(options: Options) -> list[Batch]:
    trials = options.trials or (20 if options.quick else 100)
    numbers = [tuple(range(first, min(first + BATCH, trials))) for first in range(0, trials, BATCH)]
    found = []
    for panel, kind in product(_panels(options), KINDS):
        setting = Setting(panel, 20 if options.quick else 1, options.seed)
        found += [Batch(_name(panel, kind), some, partial(carry_out, setting, partial(_strike, kind))) for some in numbers]
    return found


def _panels(options: Options) -> tuple[str, ...]:
    return chosen(options.panels, PANELS, ("mlr",))


def _name(panel: str, kind: str) -> str:
    return f"{panel} {kind}"


def _strike(kind: str, path: Path, random: np.random.Generator) -> State:
    """A perturbation of a random size, relative to the distance from the solution."""
    x = flat(path.state)
    direction = random.normal(size=x.shape) if kind == "random" else x - path.solution
    size = 10 ** random.uniform(*SIZES) * np.linalg.norm(x - path.solution)
    return moved(path.state, x + direction * (size / np.linalg.norm(direction)))


def report(options: Options, records: Sequence[Record]) -> Report:
    """Costs against ||delta|| / ||x(0) - x*||."""
    shown = {_name(panel, kind): f"{title(panel)}, {KINDS[kind]}" for panel, kind in product(_panels(options), KINDS)}
    return bounds.report(records, shown, "‖δ‖ / ‖x(0) − x*‖", f"One perturbation at iteration {FAILURE}")
