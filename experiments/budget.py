"""What the best schedule of the same bytes could save: a limit for figure 8 on MLR and MF.

Both are trainings that move steadily.

Block i going back by a iterations costs about c_i a, and costs add up. The c_i are measured: groups of blocks
(a table's blocks that move about equally far) go back, and the cost of a group is its blocks' by the square
of how far they move. Saved every t_i iterations, a block is (t_i - 1) / 2 old on average. The schedule that
makes the sum of c_i t_i smallest while it saves r N blocks every r C iterations, N / C in each, has t_i =
max(1, s / sqrt(c_i)) with one s for all blocks: without knowledge of the failure no policy can do better.
Saving by distance tends to t_i = max(1, s / d_i) where block i moves by d_i in an iteration. Full recovery
costs (C - 1) / 2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from experiments import recovery_trials, trial_plan
from experiments.convergence import ConvergenceCriterion, losses_until, passage_time
from experiments.panels import chosen_panels, load_workload, panel_title
from experiments.recovery_trials import TrajectoryTrials
from experiments.simulation import ModelState, copy_state, initial_state, moved_distances
from experiments.workloads import TrainingRun, Workload
from scar.blocks import Positions
from scar_compare.experiment import ExperimentOptions, ExperimentReport, TrialBatch
from scar_compare.figures import Figure, Panel, Series
from scar_compare.records import TrialRecord, records_of_panel
from scar_compare.trial_plans import recorded_as

NAME = "budget"
PANELS = ("mlr-mnist", "mlr-covtype", "mf-movielens", "mf-jester")
LOST = (0.5,)
BACK = 4  # iterations by which a group goes back: about what a failure does at C = 8
GROUPS = (0.0, 0.025, 0.05, 0.1, 0.2, 0.4, 1.0)  # shares of a table's blocks, those that moved farthest first
KINDS = {"distance": "priority, at its best", "best": "the best schedule"}

BlockCosts = NDArray[np.float64]  # a number for each block


def plan_batches(options: ExperimentOptions) -> list[TrialBatch]:
    found = []
    for panel in chosen_panels(options.panels, PANELS, ("mlr", "mf")):
        thin = trial_plan.THIN.get(panel, 1) if options.quick else 1
        trials = trial_plan.trials_of(options, panel, thin, (), 0)
        found.append(
            TrialBatch(
                panel,
                tuple(range(2 * BACK, options.horizon, BACK)),
                partial(_measure_costs, trials, options.period),
            )
        )
    return found


@recorded_as("_work")
def _measure_costs(trials: TrajectoryTrials, period: int, numbers: tuple[int, ...]) -> Iterator[TrialRecord]:
    """One record for each failure iteration, which is its number: what lost blocks cost by schedule."""
    model = load_workload(trials.panel, trials.thin)
    job, criterion = recovery_trials.prepare_job(model, trials)
    run = TrainingRun(initial_state(job), stream=job.seed)
    past = dict[int, ModelState]()
    for clock in range(1, min(max(numbers), criterion.undisturbed - 1) + 1):
        model.advance_runs([run])
        if clock + BACK in numbers:
            past[clock] = copy_state(run.state)
        if clock in numbers:
            distances, costs = costs_of(model, criterion, run, past.pop(clock - BACK))
            budget = job.blocks / period
            yield {
                "trial": clock,
                "best": cost_of(save_periods(np.sqrt(costs), budget), costs),
                "distance": cost_of(save_periods(distances, budget), costs),
                "half": _half_cost_share(costs),
            }


def costs_of(
    model: Workload, criterion: ConvergenceCriterion, run: TrainingRun, before: ModelState
) -> tuple[BlockCosts, BlockCosts]:
    """How far each block moves in an iteration, and what each iteration of its age costs.

    Tables one after the other.
    """
    distances = {name: found.astype(np.float64) for name, found in moved_distances(before, run.state).items()}
    groups = [(name, group) for name, far in distances.items() for group in _distance_groups(far)]
    runs = [
        TrainingRun(_set_back(run.state, before, name, group), run.clock, run.stream)
        for name, group in groups
    ]
    costs = {name: np.zeros(len(far)) for name, far in distances.items()}
    losses = losses_until(model, runs, criterion.epsilon, 2 * criterion.undisturbed)
    for (name, group), some in zip(groups, losses, strict=True):
        squares = distances[name][group] ** 2
        more = passage_time(some, criterion.epsilon) - criterion.iterations_left(run.clock)
        costs[name][group] = max(0.0, more) / BACK * squares / squares.sum()
    return np.concatenate(list(distances.values())) / BACK, np.concatenate(list(costs.values()))


def _distance_groups(distances: BlockCosts) -> list[Positions]:
    order = np.argsort(-distances, kind="stable")[: np.count_nonzero(distances)]
    edges = (np.array(GROUPS) * len(order)).round().astype(int)
    return [order[first:last] for first, last in pairwise(edges) if last > first]


def _set_back(state: ModelState, before: ModelState, table: str, blocks: Positions) -> ModelState:
    """A copy in which these blocks are as they were."""
    found = copy_state(state)
    found[table].install_blocks(blocks, before[table].copy_blocks(blocks))
    return found


def save_periods(speed: BlockCosts, budget: float) -> BlockCosts:
    """Iterations between saves when ``budget`` blocks are saved in an iteration: max(1, s / speed).

    A block that does not move is never saved.
    """
    found = np.full(len(speed), np.inf)
    moving = speed > 0
    found[moving] = 1.0
    if np.count_nonzero(moving) > budget:
        fast = speed[moving]
        scale = brentq(
            lambda s: float(np.minimum(1, fast / s).sum()) - budget, fast.min(), 2 * fast.sum() / budget
        )
        found[moving] = np.maximum(1, scale / fast)
    return found


def cost_of(periods: BlockCosts, costs: BlockCosts) -> float:
    """Iterations that are lost when all blocks are lost at a random moment.

    ``costs``: of each block, for each iteration of its age.
    """
    counts = costs > 0
    return float(np.sum(costs[counts] * (periods[counts] - 1) / 2))


def _half_cost_share(costs: BlockCosts) -> float:
    """The smallest share of the blocks that holds half of the cost."""
    part = np.cumsum(np.sort(costs)[::-1])
    return float((np.searchsorted(part, part[-1] / 2) + 1) / len(costs))


def make_report(options: ExperimentOptions, records: Sequence[TrialRecord]) -> ExperimentReport:
    """For each panel and lost fraction: the reductions, averaged over the failure iterations of figure 8."""
    rows = [
        ["panel", "half of the cost is in", "lost", "priority could save", "the best schedule could save"]
    ]
    summary = {}
    panels = []
    for panel in chosen_panels(options.panels, PANELS, ("mlr", "mf")):
        found = records_of_panel(records, panel)
        if not found:
            continue
        mean = _mean_costs(options, found)
        limits = _save_limits(options, mean)
        summary[panel] = {"half": mean["half"], "limits": limits}
        half = f"{mean['half']:.0%} of the blocks"
        for lost, one in limits.items():
            rows.append([panel, half, lost, f"{one['distance']:.1%}", f"{one['best']:.1%}"])
        clocks = [one["trial"] for one in found]
        lines = [Series(name, clocks, [one[kind] for one in found]) for kind, name in KINDS.items()]
        panels.append(Panel(panel_title(panel), "failure iteration", "cost when all is lost", lines))
    figure = Figure(panels, f"The best schedule of the same bytes; C = {options.period}")
    return ExperimentReport({"panels": summary}, rows, figure)


def _mean_costs(options: ExperimentOptions, records: Sequence[TrialRecord]) -> dict[str, float]:
    """Over failure iterations, which are geometric."""
    clocks = np.array([one["trial"] for one in records])
    weights = (1 - 1 / (options.mean * options.horizon)) ** clocks
    return {
        kind: float(np.average([one[kind] for one in records], weights=weights)) for kind in (*KINDS, "half")
    }


def _save_limits(options: ExperimentOptions, mean: dict[str, float]) -> dict[str, dict[str, float]]:
    """By lost fraction and kind of schedule: the largest reduction against full recovery."""
    full = (options.period - 1) / 2
    return {
        f"{lost:g}": {kind: 1 - lost * mean[kind] / full if full else 0.0 for kind in KINDS}
        for lost in trial_plan.lost_fractions(options, LOST)
    }
