"""Figure 9: LDA on a real cluster.

SCAR saves 1/4 in every iteration, the tradition everything in every fourth; half is lost.

SCAR and the tradition run with SIGKILL to half of the servers in iteration 7. Two more runs without failures,
one with rounds in each iteration and one with none, show what rounds cost: not only in the iteration that
starts a round, since what a round does beside the training takes its processor time wherever it runs. The
likelihood is that at the start of each iteration.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np

from experiments.cluster_training import ClusterTrainingPlan, train_on_cluster
from experiments.convergence import passage_time
from experiments.panels import chosen_panels, split_panel
from experiments.workloads import TopicModel
from scar import paper_datasets
from scar.tables import Checkpoint
from scar_compare import statistics
from scar_compare.experiment import ExperimentOptions, ExperimentReport, TrialBatch
from scar_compare.figures import Figure, Panel, Series
from scar_compare.records import TrialRecord, records_of_panel
from scar_compare.trial_plans import recorded_as

NAME = "fig9"
FILE = "examples/lda.py"
PANELS = ("lda-20newsgroups",)
TOPICS = 1000  # as in the paper
KILL_AT = 7
ITERATIONS = 30
QUICK_ITERATIONS = 16
TRIALS = 5
NEVER = 1000  # iterations
RUNS = {
    "SCAR": (Checkpoint("priority", 1 / 4, 4), "partial", True),
    "traditional": (Checkpoint("full", 1.0, 4), "full", True),
    "rounds": (Checkpoint("priority", 1 / 4, 4), "partial", False),
    "no rounds": (Checkpoint("priority", 1 / 4, 4 * NEVER), "partial", False),
}


def plan_batches(options: ExperimentOptions) -> list[TrialBatch]:
    found = []
    iterations = QUICK_ITERATIONS if options.quick else ITERATIONS
    trials = options.trials or (1 if options.quick else TRIALS)
    for number, panel in product(range(trials), chosen_panels(options.panels, PANELS, ("lda",))[:1]):
        names = RUNS if number % 2 == 0 else reversed(RUNS)  # a machine that grows slower favours neither
        work = {
            name: partial(_train_runs, name, split_panel(panel)[1], options.seed, iterations)
            for name in names
        }
        found += [TrialBatch(name, (number,), run, alone=True) for name, run in work.items()]
    return found


@recorded_as("_run")
def _train_runs(
    name: str, data: str, seed: int, iterations: int, trials: tuple[int, ...]
) -> Iterator[TrialRecord]:
    checkpoint, recovery, kill = RUNS[name]
    job = TopicModel(paper_datasets.corpus(data), TOPICS).job
    for trial in trials:
        given = replace(job, seed=seed + trial, checkpoint=checkpoint, recovery=recovery, shards=4, workers=2)
        plan = ClusterTrainingPlan(
            FILE, given, KILL_AT if kill else 0, environment={"TOPICS": str(TOPICS), "CORPUS": data}
        )
        trained = train_on_cluster(plan, lambda losses: len(losses) >= iterations)
        yield {"trial": trial, "losses": trained.losses, "seconds": trained.ends}


def make_report(_options: ExperimentOptions, records: Sequence[TrialRecord]) -> ExperimentReport:
    """Seconds of an iteration with and without rounds, and how much sooner SCAR is at the same likelihood."""
    runs = {name: records_of_panel(records, name) for name in RUNS}
    rounds = _iteration_seconds(runs["rounds"])
    others = _iteration_seconds(runs["no rounds"])
    overhead = statistics.mean_estimate([one / other - 1 for one, other in zip(rounds, others, strict=False)])
    iterations, seconds = map(statistics.mean_estimate, _lead_of_scar(runs["SCAR"], runs["traditional"]))
    with_rounds = statistics.mean_estimate(rounds)
    without_rounds = statistics.mean_estimate(others)
    summary = {
        "trials": len(runs["SCAR"]),
        "seconds_per_iteration": {"with": with_rounds.document, "without": without_rounds.document},
        "overhead": overhead.document,
        "iterations_sooner": iterations.document,
        "seconds_sooner": seconds.document,
        "killed_at": KILL_AT,
        "topics": TOPICS,
    }
    scar_runs = f"{len(runs['SCAR'])} runs"
    pairs = f"{min(len(rounds), len(others))} pairs of runs"
    rows = [
        ["", "mean", "of"],
        ["seconds of an iteration with rounds", f"{with_rounds:.3f}", f"{len(rounds)} runs"],
        ["seconds of an iteration without", f"{without_rounds:.3f}", f"{len(others)} runs"],
        ["overhead of 1/4-rounds", f"{overhead:.1%}", pairs],
        ["same likelihood sooner by iterations", f"{iterations:.1f}", scar_runs],
        ["same likelihood sooner by seconds", f"{seconds:.1f}", scar_runs],
    ]
    heading = f"LDA, {TOPICS} topics; half of the servers die in iteration {KILL_AT}"
    return ExperimentReport(summary, rows, Figure(_draw_panels(runs), heading))


def _iteration_seconds(records: Sequence[TrialRecord]) -> list[float]:
    """Median seconds of an iteration, for each run; the first one includes what happens once."""
    return [float(np.median(np.diff(one["seconds"])[1:])) for one in records]


def _lead_of_scar(
    scar_runs: Sequence[TrialRecord], traditional: Sequence[TrialRecord]
) -> tuple[list[float], list[float]]:
    """By how many iterations and seconds SCAR reaches the same likelihood sooner.

    It is the one half way from the likelihood before the failure to the other's last.

    There it falls steeply; at the end it hardly does, and fluctuates.
    """
    iterations = []
    seconds = []
    for ours, theirs in zip(scar_runs, traditional, strict=False):
        level = (theirs["losses"][KILL_AT - 1] + theirs["losses"][-1]) / 2
        clocks = [_last_passage(one["losses"], level) for one in (ours, theirs)]
        times = [_time_at(one["seconds"], clock) for one, clock in zip((ours, theirs), clocks, strict=True)]
        iterations.append(clocks[1] - clocks[0])
        seconds.append(times[1] - times[0])
    return iterations, seconds


def _last_passage(losses: Sequence[float], level: float) -> float:
    """When a run was at this likelihood for the last time, in iterations; linear between two of them."""
    above = np.flatnonzero(np.array(losses) > level)
    below = int(above[-1]) + 1 if len(above) else 0
    while below < len(losses) - 1 and math.isnan(losses[below]):
        below += 1
    return passage_time(losses[: below + 1], level) - 1


def _time_at(seconds: Sequence[float], clock: float) -> float:
    return float(np.interp(clock, range(len(seconds)), seconds))


def _draw_panels(runs: dict[str, list[TrialRecord]]) -> list[Panel]:
    """The first run of each, by iterations and by time."""
    shown = {name: some[0] for name, some in runs.items() if some}
    by_clock = [Series(name, list(range(len(one["losses"]))), one["losses"]) for name, one in shown.items()]
    by_time = [Series(name, one["seconds"], one["losses"]) for name, one in shown.items()]
    label = "negative log-likelihood"
    return [Panel("by iterations", "iteration", label, by_clock), Panel("by time", "seconds", label, by_time)]
