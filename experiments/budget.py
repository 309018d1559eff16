"""What the best schedule of the same bytes could save: a limit for figure 8 on trainings that move steadily, as MLR and MF do.

Block i going back by a iterations costs about c_i a, and costs add up. The c_i are measured: groups of blocks (a table's blocks
that move about equally far) go back, and the cost of a group is its blocks' by the square of how far they move. Saved every t_i
iterations, a block is (t_i - 1) / 2 old on average. The schedule that makes the sum of c_i t_i smallest while it saves r N
blocks every r C iterations, N / C in each, has t_i = max(1, s / sqrt(c_i)) with one s for all blocks: without knowledge of the
failure no policy can do better. Saving by distance tends to t_i = max(1, s / d_i) where block i moves by d_i in an iteration.
Full recovery costs (C - 1) / 2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from experiments import dealing, failures
from experiments.failures import Criterion, Trials, passage
from experiments.figures import Figure, Panel, Series
from experiments.panels import chosen, title, workload
from experiments.records import Record, of_panel
from experiments.runner import Batch, Options, Report
from experiments.simulation import State, duplicate, initial, moved
from experiments.workloads import Run, Workload

NAME = "budget"
PANELS = ("mlr-mnist", "mlr-covtype", "mf-movielens", "mf-jester")
LOST = (0.5,)
BACK = 4  # iterations by which a group goes back: about what a failure does at C = 8
GROUPS = (0.0, 0.025, 0.05, 0.1, 0.2, 0.4, 1.0)  # shares of a table's blocks, those that moved farthest first
KINDS = {"distance": "priority, at its best", "best": "the best schedule"}

Vector = NDArray[np.float64]
Positions = NDArray[np.int64]


def batches(options: Options) -> list[Batch]:
    found = []
    for panel in chosen(options.panels, PANELS, ("mlr", "mf")):
        thin = dealing.THIN.get(panel, 1) if options.quick else 1
        trials = dealing.trials_of(options, panel, thin, (), 0)
        found.append(Batch(panel, tuple(range(2 * BACK, options.horizon, BACK)), partial(_work, trials, options.period)))
    return found


def _work(trials: Trials, period: int, numbers: tuple[int, ...]) -> Iterator[Record]:
    """A record for each failure iteration, which is its number: what lost blocks cost under either schedule."""
    model = workload(trials.panel, trials.thin)
    job, criterion = failures.prepared(model, trials)
    run, past = Run(initial(job), stream=job.seed), dict[int, State]()
    for clock in range(1, min(max(numbers), criterion.undisturbed - 1) + 1):
        model.advance([run])
        if clock + BACK in numbers:
            past[clock] = duplicate(run.state)
        if clock in numbers:
            distances, costs = costs_of(model, criterion, run, past.pop(clock - BACK))
            budget = job.blocks / period
            yield {
                "trial": clock,
                "best": cost_of(periods(np.sqrt(costs), budget), costs),
                "distance": cost_of(periods(distances, budget), costs),
                "half": _holders(costs),
            }


def costs_of(model: Workload, criterion: Criterion, run: Run, before: State) -> tuple[Vector, Vector]:
    """How far each block moves in an iteration, and what each iteration of its age costs; tables one after the other."""
    distances = {name: found.astype(np.float64) for name, found in moved(before, run.state).items()}
    groups = [(name, group) for name, far in distances.items() for group in _groups(far)]
    runs = [Run(_back(run.state, before, name, group), run.clock, run.stream) for name, group in groups]
    costs = {name: np.zeros(len(far)) for name, far in distances.items()}
    for (name, group), left in zip(groups, _passages(model, criterion, runs), strict=True):
        squares = distances[name][group] ** 2
        costs[name][group] = max(0.0, left - criterion.left(run.clock)) / BACK * squares / squares.sum()
    return np.concatenate(list(distances.values())) / BACK, np.concatenate(list(costs.values()))


def _groups(distances: Vector) -> list[Positions]:
    order = np.argsort(-distances, kind="stable")[: np.count_nonzero(distances)]
    edges = (np.array(GROUPS) * len(order)).round().astype(int)
    return [order[first:last] for first, last in pairwise(edges) if last > first]


def _back(state: State, before: State, table: str, blocks: Positions) -> State:
    """A copy in which these blocks are as they were."""
    found = duplicate(state)
    found[table].install(blocks, before[table].copy(blocks))
    return found


def _passages(model: Workload, criterion: Criterion, runs: Sequence[Run]) -> list[float]:
    """Iterations that each run needs until the loss is that of the criterion."""
    losses: list[list[float]] = [[] for _ in runs]
    active = list(range(len(runs)))
    while active:
        part = active[: model.together]
        for index, loss in zip(part, model.advance([runs[index] for index in part]), strict=True):
            losses[index].append(loss)
        ended = {i for i in part if losses[i][-1] <= criterion.epsilon or len(losses[i]) >= 2 * criterion.undisturbed}
        active = [index for index in active if index not in ended]
    return [passage(some, criterion.epsilon) for some in losses]


def periods(speed: Vector, budget: float) -> Vector:
    """Iterations between saves: max(1, s / speed), with which ``budget`` blocks are saved in an iteration; a block that does
    not move is never saved."""
    found = np.full(len(speed), np.inf)
    moving = speed > 0
    found[moving] = 1.0
    if np.count_nonzero(moving) > budget:
        fast = speed[moving]
        scale = brentq(lambda s: float(np.minimum(1, fast / s).sum()) - budget, fast.min(), 2 * fast.sum() / budget)
        found[moving] = np.maximum(1, scale / fast)
    return found


def cost_of(periods: Vector, costs: Vector) -> float:
    """Iterations, when all blocks are lost at a random moment; ``costs``: of each, for each iteration of its age."""
    counts = costs > 0
    return float(np.sum(costs[counts] * (periods[counts] - 1) / 2))


def _holders(costs: Vector) -> float:
    """The smallest share of the blocks that holds half of the cost."""
    part = np.cumsum(np.sort(costs)[::-1])
    return float((np.searchsorted(part, part[-1] / 2) + 1) / len(costs))


def report(options: Options, records: Sequence[Record]) -> Report:
    """For each panel and lost fraction: the reductions, averaged over the failure iterations of figure 8."""
    rows = [["panel", "half of the cost is in", "lost", "priority could save", "the best schedule could save"]]
    summary, panels = {}, []
    full = (options.period - 1) / 2
    for panel in chosen(options.panels, PANELS, ("mlr", "mf")):
        found = of_panel(records, panel)
        if not found:
            continue
        clocks = np.array([one["trial"] for one in found])
        weights = (1 - 1 / (options.mean * options.horizon)) ** clocks
        mean = {kind: float(np.average([one[kind] for one in found], weights=weights)) for kind in (*KINDS, "half")}
        limits = {
            f"{lost:g}": {kind: 1 - lost * mean[kind] / full if full else 0.0 for kind in KINDS}
            for lost in dealing.lost(options, LOST)
        }
        summary[panel] = {"half": mean["half"], "limits": limits}
        for lost, one in limits.items():
            rows.append([panel, f"{mean['half']:.0%} of the blocks", lost, f"{one['distance']:.1%}", f"{one['best']:.1%}"])
        lines = [Series(name, clocks.tolist(), [one[kind] for one in found]) for kind, name in KINDS.items()]
        panels.append(Panel(title(panel), "failure iteration", "cost when all is lost", lines))
    return Report({"panels": summary}, rows, Figure(panels, f"The best schedule of the same bytes; C = {options.period}"))
