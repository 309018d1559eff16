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

from experiments.figures import Figure, Panel, Series
from experiments.panels import chosen, split
from experiments.processes import Plan, train
from experiments.records import Record
from experiments.runner import Batch, Options, Report
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
RUNS = {
    "SCAR": (Checkpoint("priority", 1 / 4, 4), "partial", True),
    "traditional": (Checkpoint("full", 1.0, 4), "full", True),
    "undisturbed": (Checkpoint("priority", 1 / 4, 8), "partial", False),
}


def batches(options: Options) -> list[Batch]:
    iterations = QUICK_ITERATIONS if options.quick else ITERATIONS
    found = []
    for number, panel in product(range(options.trials or 1), chosen(options.panels, PANELS, ("lda",))[:1]):
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
    runs = {name: [one for one in records if one["panel"] == name] for name in RUNS}
    pace = {name: _pace(runs["undisturbed"], first) for name, first in (("with a round", 2), ("without", 3))}
    overhead = pace["with a round"] / pace["without"] - 1
    sooner, seconds = _sooner(runs["SCAR"], runs["traditional"])
    summary = {
        "seconds_per_iteration": pace,
        "overhead": overhead,
        "iterations_sooner": sooner,
        "seconds_sooner": seconds,
        "killed_at": KILL_AT,
        "topics": TOPICS,
    }
    rows = [["", ""], *([f"seconds of an iteration {name}", f"{median:.3f}"] for name, median in pace.items())]
    rows += [["overhead of 1/4-rounds", f"{overhead:.1%}"], ["same likelihood sooner by iterations", f"{sooner:.1f}"]]
    rows += [["same likelihood sooner by seconds", f"{seconds:.1f}"]]
    return Report(summary, rows, Figure(_panels(runs), f"LDA, {TOPICS} topics; half of the servers die in iteration {KILL_AT}"))


def _pace(records: Sequence[Record], first: int) -> float:
    """Median seconds of every second iteration from ``first`` on. Rounds are due after an even number of iterations, so they
    are held during iterations with even numbers (from 0)."""
    steps = [step for one in records for step in np.diff(one["seconds"])[first - 1 :: 2]]
    return float(np.median(steps))


def _sooner(scar_runs: Sequence[Record], traditional: Sequence[Record]) -> tuple[float, float]:
    """By how many iterations and seconds SCAR reaches the likelihood that the other run ends with."""
    iterations, seconds = [], []
    for ours, theirs in zip(scar_runs, traditional, strict=True):
        reached = int(np.argmax(np.array(ours["losses"]) <= theirs["losses"][-1]))
        iterations.append(len(theirs["losses"]) - 1 - reached)
        seconds.append(theirs["seconds"][-1] - ours["seconds"][reached])
    return float(np.mean(iterations)), float(np.mean(seconds))


def _panels(runs: dict[str, list[Record]]) -> list[Panel]:
    """The first run of each, by iterations and by time."""
    shown = {name: some[0] for name, some in runs.items() if some}
    by_clock = [Series(name, list(range(len(one["losses"]))), one["losses"]) for name, one in shown.items()]
    by_time = [Series(name, one["seconds"], one["losses"]) for name, one in shown.items()]
    label = "negative log-likelihood"
    return [Panel("by iterations", "iteration", label, by_clock), Panel("by time", "seconds", label, by_time)]
