"""Figure 9: LDA on a real cluster. SCAR saves 1/4 in every iteration, the tradition everything in every fourth; half is lost.

SCAR and the tradition run with SIGKILL to half of the servers in iteration 7. Two more runs without failures, one with rounds
in each iteration and one with none, show what rounds cost: not only in the iteration that starts a round, since what a round
does beside the training takes its processor time wherever it runs. The likelihood is that at the start of each iteration.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np

from experiments import statistics
from experiments.failures import passage
from experiments.figures import Figure, Panel, Series
from experiments.panels import chosen, split
from experiments.processes import Plan, train
from experiments.records import Record, of_panel
from experiments.runner import Batch, Options, Report
from experiments.workloads import TopicModel
from scar import published
from scar.tables import Checkpoint

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


def batches(options: Options) -> list[Batch]:
    found = []
    iterations = QUICK_ITERATIONS if options.quick else ITERATIONS
    trials = options.trials or (1 if options.quick else TRIALS)
    for number, panel in product(range(trials), chosen(options.panels, PANELS, ("lda",))[:1]):
        names = RUNS if number % 2 == 0 else reversed(RUNS)  # a machine that grows slower favours neither
        work = {name: partial(_run, name, split(panel)[1], options.seed, iterations) for name in names}
        found += [Batch(name, (number,), run, alone=True) for name, run in work.items()]
    return found


def _run(name: str, data: str, seed: int, iterations: int, trials: tuple[int, ...]) -> Iterator[Record]:
    checkpoint, recovery, kill = RUNS[name]
    job = TopicModel(published.corpus(data), TOPICS).job
    for trial in trials:
        given = replace(job, seed=seed + trial, checkpoint=checkpoint, recovery=recovery, shards=4, workers=2)
        plan = Plan(FILE, given, KILL_AT if kill else 0, environment={"TOPICS": str(TOPICS), "CORPUS": data})
        trained = train(plan, lambda losses: len(losses) >= iterations)
        yield {"trial": trial, "losses": trained.losses, "seconds": trained.ends}


def report(_options: Options, records: Sequence[Record]) -> Report:
    """Seconds of an iteration with and without rounds, and how much sooner SCAR is at the same likelihood."""
    runs = {name: of_panel(records, name) for name in RUNS}
    rounds, others = _pace(runs["rounds"]), _pace(runs["no rounds"])
    overhead = statistics.mean([one / other - 1 for one, other in zip(rounds, others, strict=False)])
    iterations, seconds = (statistics.mean(some) for some in _sooner(runs["SCAR"], runs["traditional"]))
    summary = {
        "trials": len(runs["SCAR"]),
        "seconds_per_iteration": {"with": statistics.mean(rounds).document, "without": statistics.mean(others).document},
        "overhead": overhead.document,
        "iterations_sooner": iterations.document,
        "seconds_sooner": seconds.document,
        "killed_at": KILL_AT,
        "topics": TOPICS,
    }
    rows = [["", "mean", "of"]]
    rows += [["seconds of an iteration with rounds", f"{statistics.mean(rounds):.3f}", f"{len(rounds)} runs"]]
    rows += [["seconds of an iteration without", f"{statistics.mean(others):.3f}", f"{len(others)} runs"]]
    rows += [["overhead of 1/4-rounds", f"{overhead:.1%}", f"{min(len(rounds), len(others))} pairs of runs"]]
    rows += [["same likelihood sooner by iterations", f"{iterations:.1f}", f"{len(runs['SCAR'])} runs"]]
    rows += [["same likelihood sooner by seconds", f"{seconds:.1f}", f"{len(runs['SCAR'])} runs"]]
    return Report(summary, rows, Figure(_panels(runs), f"LDA, {TOPICS} topics; half of the servers die in iteration {KILL_AT}"))


def _pace(records: Sequence[Record]) -> list[float]:
    """Median seconds of an iteration, for each run; the first one includes what happens once."""
    return [float(np.median(np.diff(one["seconds"])[1:])) for one in records]


def _sooner(scar_runs: Sequence[Record], traditional: Sequence[Record]) -> tuple[list[float], list[float]]:
    """By how many iterations and seconds SCAR is sooner half way from the likelihood before the failure to the other's last.

    There it falls steeply; at the end it hardly does, and fluctuates.
    """
    iterations, seconds = [], []
    for ours, theirs in zip(scar_runs, traditional, strict=False):
        level = (theirs["losses"][KILL_AT - 1] + theirs["losses"][-1]) / 2
        clocks = [_passage(one["losses"], level) for one in (ours, theirs)]
        times = [_time(one["seconds"], clock) for one, clock in zip((ours, theirs), clocks, strict=True)]
        iterations.append(clocks[1] - clocks[0])
        seconds.append(times[1] - times[0])
    return iterations, seconds


def _passage(losses: Sequence[float], level: float) -> float:
    """When a run was at this likelihood for the last time, in iterations; between two it is taken to be linear."""
    above = np.flatnonzero(np.array(losses) > level)
    below = int(above[-1]) + 1 if len(above) else 0
    return passage(losses[: below + 1], level) - 1


def _time(seconds: Sequence[float], clock: float) -> float:
    return float(np.interp(clock, range(len(seconds)), seconds))


def _panels(runs: dict[str, list[Record]]) -> list[Panel]:
    """The first run of each, by iterations and by time."""
    shown = {name: some[0] for name, some in runs.items() if some}
    by_clock = [Series(name, list(range(len(one["losses"]))), one["losses"]) for name, one in shown.items()]
    by_time = [Series(name, one["seconds"], one["losses"]) for name, one in shown.items()]
    label = "negative log-likelihood"
    return [Panel("by iterations", "iteration", label, by_clock), Panel("by time", "seconds", label, by_time)]
