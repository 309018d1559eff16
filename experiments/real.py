"""The iteration cost of real SIGKILLs on real clusters, next to the simulated interval.

Two settings, MLR on MNIST and MF on MovieLens. Half of four servers die at the failure iteration of a trial
of the experiment; 1/8-rounds by priority, partial recovery. A real trial and the first of its simulated ones
share seed, data, criterion and failure iteration, not the blocks: in a cluster it is the placement that says
which are lost. Workers pause at the failure (``experiments/training.py``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from experiments import recovery_trials, trial_plan
from experiments.cluster_training import SHARDS, WORKERS, ClusterTrainingPlan, train_on_cluster
from experiments.convergence import ConvergenceCriterion, passage_time
from experiments.panels import chosen_panels, load_workload, panel_title
from experiments.recovery_trials import RecoveryCase, TrajectoryTrials
from experiments.workloads import Factorisation, Regression, Workload
from scar.errors import ConfigError
from scar.tables import Checkpoint, Job
from scar_compare import statistics
from scar_compare.experiment import ExperimentOptions, ExperimentReport, TrialBatch
from scar_compare.figures import Figure, Panel, Series
from scar_compare.records import TrialRecord, records_of_panel
from scar_compare.statistics import Estimate
from scar_compare.trial_plans import recorded_as
from scar_runtime.failure_records import FailureRecord

NAME = "real"
FILE = "experiments/training.py"
# simulated trials for each real one: their interval has to be the narrower
TRIALS = 10
SIMULATED = 4
CASE = "priority 1/8"
MOST = 3  # times the undisturbed iterations


@dataclass(frozen=True)
class IterationClocks:
    """How many clocks an iteration has on the cluster.

    ``summed``: its loss is the sum of theirs; else it is that of the last.
    """

    count: int
    summed: bool


PANELS = ("mlr-mnist", "mf-movielens")


def iteration_clocks(model: Workload) -> IterationClocks:
    """MLR: a clock is a batch.

    MF: half a sweep. Raises :class:`ConfigError` for a model without a training file.
    """
    if isinstance(model, Regression):
        return IterationClocks(-(-len(model.data.y) // model.batch), summed=True)
    if isinstance(model, Factorisation):
        return IterationClocks(2, summed=False)
    raise ConfigError(
        "real runs are of mlr and mf", "Use --panel mlr-mnist, mf-movielens or another data set of theirs"
    )


def plan_batches(options: ExperimentOptions) -> list[TrialBatch]:
    count = options.trials or (1 if options.quick else TRIALS)
    found = []
    for panel in chosen_panels(options.panels, PANELS, ("mlr", "mf")):
        for number in range(count):
            trials = _panel_trials(options, panel, number)
            simulated = tuple(range(number * SIMULATED, (number + 1) * SIMULATED))
            found.append(TrialBatch(f"{panel} simulated", simulated, partial(_run_simulated, trials)))
            found.append(TrialBatch(f"{panel} real", (number,), partial(_run_real, trials), alone=True))
    return found


def _panel_trials(options: ExperimentOptions, panel: str, number: int) -> TrajectoryTrials:
    """Each has a seed of its own, so that each cluster has another placement."""
    case = RecoveryCase(CASE, Checkpoint("priority", 1 / 8, options.period), "partial", 0.5)
    return trial_plan.trials_of(options, panel, 1, (case,), number)


@recorded_as("_simulated")
def _run_simulated(trials: TrajectoryTrials, numbers: tuple[int, ...]) -> Iterator[TrialRecord]:
    for record in recovery_trials.run_trials(replace(trials, numbers=numbers)):
        yield {"trial": record["trial"], "failed": record["failed"], "cost": record["costs"][CASE]}


@recorded_as("_real")
def _run_real(trials: TrajectoryTrials, numbers: tuple[int, ...]) -> Iterator[TrialRecord]:
    """One cluster for each trial."""
    model = load_workload(trials.panel)
    job, criterion = recovery_trials.prepare_job(model, trials)
    for number in numbers:
        yield run_killed(trials, number, job, criterion, iteration_clocks(model))


def run_killed(
    trials: TrajectoryTrials, number: int, job: Job, criterion: ConvergenceCriterion, clocks: IterationClocks
) -> TrialRecord:
    """A cluster half of whose servers die: its cost, and what the ledger says of the failure."""
    failed = recovery_trials.failure_iteration(trials, number * SIMULATED, criterion.undisturbed)
    plan = _cluster_plan(trials, number, job, failed, clocks)

    def enough(losses: list[float]) -> bool:
        found = _by_iteration(losses, clocks)
        return len(found) > failed and (
            found[-1] <= criterion.epsilon or len(found) >= MOST * criterion.undisturbed
        )

    trained = train_on_cluster(plan, enough)
    after = _by_iteration(trained.losses, clocks)[failed:]
    return {
        "trial": number,
        "failed": failed,
        "killed": trained.killed_at / clocks.count,
        "lost": trained.lost_blocks / job.blocks,
        "cost": failed + passage_time(after, criterion.epsilon) - criterion.undisturbed,
        "sources": sum_sources(trained.failures),
        "lost_pushes": sum(failure.lost_pushes for failure in trained.failures),
    }


def sum_sources(failures: Sequence[FailureRecord]) -> dict[str, int]:
    """Kind of source -> blocks that came from there."""
    found: Counter[str] = Counter()
    for failure in failures:
        found.update(failure.sources)
    return dict(found)


def _cluster_plan(
    trials: TrajectoryTrials, number: int, job: Job, failed: int, clocks: IterationClocks
) -> ClusterTrainingPlan:
    """``failed``: the iteration after which half of the servers die."""
    checkpoint = trials.cases[0].checkpoint
    victims = np.random.default_rng([trials.seed, number]).choice(SHARDS, SHARDS // 2, replace=False)
    on_cluster = replace(
        recovery_trials.with_recovery(job, trials.cases[0].recovery),
        checkpoint=replace(checkpoint, period=checkpoint.period * clocks.count),
        shards=SHARDS,
        workers=WORKERS,
    )
    return ClusterTrainingPlan(
        FILE,
        on_cluster,
        failed * clocks.count,
        [f"ps-{victim}" for victim in victims],
        pause=True,
        environment={"SCAR_EXPERIMENT_PANEL": trials.panel},
    )


def _by_iteration(losses: Sequence[float], clocks: IterationClocks) -> list[float]:
    """Losses of whole iterations."""
    whole = np.array(losses[: len(losses) // clocks.count * clocks.count]).reshape(-1, clocks.count)
    found: list[float] = (whole.sum(axis=1) if clocks.summed else whole[:, -1]).tolist()
    return found


def make_report(options: ExperimentOptions, records: Sequence[TrialRecord]) -> ExperimentReport:
    """Both intervals, and whether they overlap."""
    rows = [["panel", "real trials", "real cost", "simulated cost", "overlap"]]
    summary = {}
    panels = []
    for panel in chosen_panels(options.panels, PANELS, ("mlr", "mf")):
        real, simulated = (records_of_panel(records, f"{panel} {kind}") for kind in ("real", "simulated"))
        if not (real and simulated):
            continue
        measured, expected = (
            statistics.mean_estimate([float(one["cost"]) for one in some]) for some in (real, simulated)
        )
        overlap = _intervals_overlap(measured, expected) if len(real) > 1 else "one run has no interval"
        rows.append([panel, str(len(real)), str(measured), str(expected), overlap])
        summary[panel] = {
            "trials": len(real),
            "real": measured.document,
            "simulated": expected.document,
            "overlap": overlap,
            "lost": statistics.mean_estimate([float(one["lost"]) for one in real]).document,
        }
        panels.append(_draw_panel(panel, real, simulated))
    return ExperimentReport(
        {"panels": summary}, rows, Figure(panels, "Iteration cost: real processes and simulation")
    )


def _intervals_overlap(one: Estimate, other: Estimate) -> str:
    return "yes" if one.low <= other.high and other.low <= one.high else "no"


def _draw_panel(panel: str, real: Sequence[TrialRecord], simulated: Sequence[TrialRecord]) -> Panel:
    series = [
        Series(name, [one["failed"] for one in some], [one["cost"] for one in some], style="points")
        for name, some in (("simulated", simulated), ("real", real))
    ]
    return Panel(panel_title(panel), "failure iteration", "iteration cost", series)
