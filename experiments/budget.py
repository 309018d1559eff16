"""What the best schedule could save with the same bytes: a limit for figure 8 on trainings that move steadily, as MLR does.

Where row i moves by v_i in an iteration, a row that goes back by a iterations costs about v_i^2 a: the gradient is along the
movement. Saved every t_i iterations it is (t_i - 1) / 2 old on average. The schedule that makes the sum smallest while it saves
r N rows every r C iterations, N / C in each, has t_i = max(1, s / v_i) with one s for all rows: that is also what saving by
distance tends to. Full recovery costs (C - 1) / 2. No policy without knowledge of the failure can do better than this limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from experiments import dealing, failures
from experiments.failures import Trials
from experiments.figures import Figure, Panel, Series
from experiments.panels import chosen, title, workload
from experiments.records import Record, of_panel
from experiments.runner import Batch, Options, Report
from experiments.simulation import initial
from experiments.workloads import Run

NAME = "budget"
PANELS = ("mlr-mnist", "mlr-covtype")
LOST = (0.5,)
THIN = 10  # the movement of rows hardly depends on the number of examples, for a quick look

Vector = NDArray[np.float64]


def batches(options: Options) -> list[Batch]:
    found = []
    for panel in chosen(options.panels, PANELS, ("mlr",)):
        trials = dealing.trials_of(options, panel, THIN if options.quick else 1, (), 0)
        found.append(Batch(panel, tuple(range(1, options.horizon)), partial(_work, trials, options.period)))
    return found


def _work(trials: Trials, period: int, numbers: tuple[int, ...]) -> Iterator[Record]:
    """A record for each iteration, which is its number: how old a block is on average, weighted by what its age costs."""
    model = workload(trials.panel, trials.thin)
    run = Run(initial(replace(model.job, seed=failures.seed_of(trials, "trajectory", 0))))
    (store,) = run.state.values()
    for clock in range(1, max(numbers) + 1):
        before = store.values.copy()
        model.advance([run])
        if clock in numbers:
            speed = np.linalg.norm(np.subtract(store.values, before).reshape(len(store), -1).astype(np.float64), axis=1)
            yield {"trial": clock, "age": best_age(speed, len(store) / period), "half": _movers(speed)}


def best_age(speed: Vector, budget: float) -> float:
    """Iterations; ``budget``: blocks that are saved in an iteration on average, fewer than there are blocks that move."""
    moving = speed[speed > 0]
    if len(moving) <= budget:
        return 0.0
    scale = brentq(lambda s: float(np.minimum(1, moving / s).sum()) - budget, moving.min(), 2 * moving.sum() / budget)
    periods = np.maximum(1, scale / moving)
    return float(np.average((periods - 1) / 2, weights=moving**2))


def _movers(speed: Vector) -> float:
    """The smallest share of the blocks that makes half of the movement (of its square)."""
    part = np.cumsum(np.sort(speed**2)[::-1])
    return float((np.searchsorted(part, part[-1] / 2) + 1) / len(speed))


def report(options: Options, records: Sequence[Record]) -> Report:
    """For each panel and lost fraction: the reduction, averaged over the failure iterations of figure 8."""
    rows = [["panel", "half of the movement is in", "lost", "could save at most"]]
    summary, panels = {}, []
    for panel in chosen(options.panels, PANELS, ("mlr",)):
        found = of_panel(records, panel)
        if not found:
            continue
        clocks = np.array([one["trial"] for one in found])
        weights = (1 - 1 / (options.mean * options.horizon)) ** clocks
        age = float(np.average([one["age"] for one in found], weights=weights))
        movers = float(np.average([one["half"] for one in found], weights=weights))
        full = (options.period - 1) / 2
        limits = {lost: 1 - lost * age / full if full else 0.0 for lost in dealing.lost(options, LOST)}
        summary[panel] = {"movers": movers, "age": age, "limits": {f"{lost:g}": limit for lost, limit in limits.items()}}
        rows += [[panel, f"{movers:.0%} of the blocks", f"{lost:g}", f"{limit:.1%}"] for lost, limit in limits.items()]
        line = Series("", clocks.tolist(), [one["age"] for one in found])
        panels.append(Panel(title(panel), "iteration", "mean age of what is saved", [line]))
    return Report({"panels": summary}, rows, Figure(panels, f"The best schedule of the same bytes; C = {options.period}"))
