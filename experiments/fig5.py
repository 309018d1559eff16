"""Figure 5: MLR on MNIST, one perturbation at iteration 50, random or adversarial, against the bound of Theorem 3.2.

x* stands for the iterate after ten times the iterations of the figure, c is the slowest step of the undisturbed run.
*Adversarial* is away from x*, along the line through both.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from experiments import bounds
from experiments.figures import Figure
from experiments.perturbed import SIZES, Path, Setting, carry_out, flat, moved
from experiments.records import Record, of_panel
from experiments.runner import Batch, Options, Report
from experiments.simulation import State

NAME = "fig5"
KINDS = {"random": "random direction", "adversarial": "away from the solution"}
BATCH = 50


def batches(options: Options) -> list[Batch]:
    panel = (options.panels or ("mlr-mnist",))[0]
    trials = options.trials or (20 if options.quick else 100)
    setting = Setting(panel, 20 if options.quick else 1, options.seed)
    numbers = [tuple(range(first, min(first + BATCH, trials))) for first in range(0, trials, BATCH)]
    return [Batch(kind, some, partial(carry_out, setting, partial(_strike, kind))) for kind in KINDS for some in numbers]


def _strike(kind: str, path: Path, random: np.random.Generator) -> State:
    """A perturbation of a random size, relative to the distance from the solution."""
    x = flat(path.state)
    direction = random.normal(size=x.shape) if kind == "random" else x - path.solution
    size = 10 ** random.uniform(*SIZES) * np.linalg.norm(x - path.solution)
    return moved(path.state, x + direction * (size / np.linalg.norm(direction)))


def report(_options: Options, records: Sequence[Record]) -> Report:
    """Costs against ||delta|| / ||x(0) - x*||."""
    panels = [bounds.panel(of_panel(records, kind), title, "‖δ‖ / ‖x(0) − x*‖") for kind, title in KINDS.items()]
    numbers = {kind: bounds.summary(of_panel(records, kind)) for kind in KINDS}
    return Report({"panels": numbers}, bounds.rows(records, list(KINDS)), Figure(panels, "MLR, perturbed at iteration 50"))
