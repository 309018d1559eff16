"""Figure 9: LDA on a real cluster. SCAR saves 1/4 in every iteration, the tradition everything in every fourth; half is lost.

SCAR and the tradition run with SIGKILL to half of the servers in iteration 7. A third run without failures holds a round in
every second iteration and shows what rounds cost: both kinds of iterations see the same machine. The likelihood is that at the
start of each iteration.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np

from experiments import statistics
from experiments.figures import Figure, Panel, Series
from experiments.panels import chosen, split
from experiments.processes import Plan, train
from experiments.records import Record, of_panel
from experiments.runner import Batch, Options, Report
from experiments.statistics import Estimate
from experiments.workloads import TopicModel
from scar import published
from scar.tables import Checkpoint

NAME = "fig9"
FILE = "examples/lda.py"
PANELS = ("lda-20newsgroups",)
TOPICS = 200  # so that an iteration is long beside a round, as the paper's 243 s are
KILL_AT = 7
ITERATIONS = 30
QUICK_ITERATIONS = 16
TRIALS = 5
RUNS = {
    "SCAR": (Checkpoint("priority", 1 / 4, 4), "partial", True),
    "traditional": (Checkpoint("full", 1.0, 4), "full", True),
    "undisturbed": (Checkpoint("priority", 1 / 4, 8), "partial", False),
}


def batches(options: Options) -> list[Batch]:
    found = []
    iterations = QUICK_ITERATIONS if options.quick else ITERATIONS
    trials = options.trials or (1 if options.quick else TRIALS)
    for number, panel in product(range(trials), chosen(options.panels, PANELS, ("lda",))[:1]):
        work = {name: partial(_run, name, split(panel)[1], options.seed, iterations) for name in RUNS}
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
    """Seconds of an iteration with and without rounds, and when each run is back at the likelihood of the failure."""
    runs = {name: of_panel(records, name) for name in RUNS}
    rounds, others = _pace(runs["undisturbed"])
    saved = statistics.reduction(rounds, others, np.median)
    overhead = Estimate(-saved.value, -saved.high, -saved.low)
    iterations, seconds = (statistics.mean(some) for some in _sooner(runs["SCAR"], runs["traditional"]))
    summary = {
        "trials": len(runs["SCAR"]),
        "seconds_per_iteration": {"with": float(np.median(rounds)), "without": float(np.median(others))},
        "overhead": overhead.document,
        "iterations_sooner": iterations.document,
        "seconds_sooner": seconds.document,
        "killed_at": KILL_AT,
        "topics": TOPICS,
    }
    rows = [["", "median or mean", "of"]]
    rows += [["seconds of an iteration with a round", f"{np.median(rounds):.3f}", f"{len(rounds)} iterations"]]
    rows += [["seconds of an iteration without", f"{np.median(others):.3f}", f"{len(others)} iterations"]]
    rows += [["overhead of 1/4-rounds", f"{overhead:.1%}", f"{len(rounds)} pairs"]]
    rows += [["same likelihood sooner by iterations", f"{iterations:.1f}", f"{len(runs['SCAR'])} runs"]]
    rows += [["same likelihood sooner by seconds", f"{seconds:.1f}", f"{len(runs['SCAR'])} runs"]]
    return Report(summary, rows, Figure(_panels(runs), f"LDA, {TOPICS} topics; half of the servers die in iteration {KILL_AT}"))


def _pace(records: Sequence[Record]) -> tuple[list[float], list[float]]:
    """Seconds of iterations with and without a round, in pairs of neighbours. Rounds are due after an even number of
    iterations, so they are held during iterations with even numbers (from 0)."""
    rounds, others = [], []
    for one in records:
        steps = np.diff(one["seconds"])[1:]
        pairs = len(steps) // 2
        rounds += steps[: 2 * pairs : 2].tolist()
        others += steps[1 : 2 * pairs : 2].tolist()
    return rounds, others


def _sooner(scar_runs: Sequence[Record], traditional: Sequence[Record]) -> tuple[list[float], list[float]]:
    """By how many iterations and seconds SCAR reaches the likelihood that the other run ends with, for each trial."""
    iterations, seconds = [], []
    for ours, theirs in zip(scar_runs, traditional, strict=False):
        reached = int(np.argmax(np.array(ours["losses"]) <= theirs["losses"][-1]))
        iterations.append(float(len(theirs["losses"]) - 1 - reached))
        seconds.append(float(theirs["seconds"][-1] - ours["seconds"][reached]))
    return iterations, seconds


def _panels(runs: dict[str, list[Record]]) -> list[Panel]:
    """The first run of each, by iterations and by time."""
    shown = {name: some[0] for name, some in runs.items() if some}
    by_clock = [Series(name, list(range(len(one["losses"]))), one["losses"]) for name, one in shown.items()]
    by_time = [Series(name, one["seconds"], one["losses"]) for name, one in shown.items()]
    label = "negative log-likelihood"
    return [Panel("by iterations", "iteration", label, by_clock), Panel("by time", "seconds", label, by_time)]
