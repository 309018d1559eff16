"""From simulation to fact: the iteration cost of real SIGKILLs on real clusters, next to the experiment's interval.

Two settings, MLR on MNIST and MF on MovieLens. Half of four servers die at the failure iteration of a trial of the experiment;
1/8-rounds by priority, partial recovery. A real trial and the first of its simulated ones share seed, data, criterion and
failure iteration, not the blocks: in a cluster it is the placement that says which are lost. Workers pause at the failure
(``experiments/training.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from experiments import dealing, failures, statistics
from experiments.failures import Case, Criterion, Trials, passage
from experiments.figures import Figure, Panel, Series
from experiments.panels import chosen, title, workload
from experiments.processes import SHARDS, WORKERS, Plan, train
from experiments.records import Record, of_panel
from experiments.runner import Batch, Options, Report
from experiments.statistics import Estimate
from experiments.workloads import Factorisation, Regression, Workload
from scar.errors import ConfigError
from scar.tables import Checkpoint, Job

NAME = "real"
FILE = "experiments/training.py"
TRIALS, SIMULATED = 10, 4  # simulated trials for each real one: their interval has to be the narrower
CASE = "priority 1/8"
MOST = 3  # times the undisturbed iterations


@dataclass(frozen=True)
class Clocks:
    """``count``: of an iteration on the cluster, whose losses are ``summed``, or the last of which is the iteration's."""

    count: int
    summed: bool


PANELS = ("mlr-mnist", "mf-movielens")


def clocks(model: Workload) -> Clocks:
    """MLR: a clock is a batch. MF: half a sweep. Raises :class:`ConfigError` for a model without a training file."""
    if isinstance(model, Regression):
        return Clocks(-(-len(model.data.y) // model.batch), summed=True)
    if isinstance(model, Factorisation):
        return Clocks(2, summed=False)
    raise ConfigError("real runs are of mlr and mf", "Use --panel mlr-mnist, mf-movielens or another data set of theirs")


def batches(options: Options) -> list[Batch]:
    count = options.trials or (1 if options.quick else TRIALS)
    found = []
    for panel in chosen(options.panels, PANELS, ("mlr", "mf")):
        for number in range(count):
            trials = _trials(options, panel, number)
            simulated = tuple(range(number * SIMULATED, (number + 1) * SIMULATED))
            found.append(Batch(f"{panel} simulated", simulated, partial(_simulated, trials)))
            found.append(Batch(f"{panel} real", (number,), partial(_real, trials), alone=True))
    return found


def _trials(options: Options, panel: str, number: int) -> Trials:
    """Each has a seed of its own, so that each cluster has another placement."""
    case = Case(CASE, Checkpoint("priority", 1 / 8, options.period), "partial", 0.5)
    return dealing.trials_of(options, panel, 1, (case,), number)


def _simulated(trials: Trials, numbers: tuple[int, ...]) -> Iterator[Record]:
    for record in failures.carry_out(replace(trials, numbers=numbers)):
        yield {"trial": record["trial"], "failed": record["failed"], "cost": record["costs"][CASE]}


def _real(trials: Trials, numbers: tuple[int, ...]) -> Iterator[Record]:
    """One cluster for each trial."""
    model = workload(trials.panel)
    job, criterion = failures.prepared(model, trials)
    for number in numbers:
        yield _killed(trials, number, job, criterion, clocks(model))


def _killed(trials: Trials, number: int, job: Job, criterion: Criterion, clocks: Clocks) -> Record:
    checkpoint = trials.cases[0].checkpoint
    failed = failures.failure_iteration(trials, number * SIMULATED, criterion.undisturbed)
    victims = np.random.default_rng([trials.seed, number]).choice(SHARDS, SHARDS // 2, replace=False)
    plan = Plan(
        FILE,
        replace(job, checkpoint=replace(checkpoint, period=checkpoint.period * clocks.count), shards=SHARDS, workers=WORKERS),
        failed * clocks.count,
        [f"ps-{victim}" for victim in victims],
        pause=True,
        environment={"SCAR_EXPERIMENT_PANEL": trials.panel},
    )

    def enough(losses: list[float]) -> bool:
        found = _by_iteration(losses, clocks)
        return len(found) > failed and (found[-1] <= criterion.epsilon or len(found) >= MOST * criterion.undisturbed)

    trained = train(plan, enough)
    after = _by_iteration(trained.losses, clocks)[failed:]
    return {
        "trial": number,
        "failed": failed,
        "killed": trained.killed_at / clocks.count,
        "lost": trained.lost_blocks / job.blocks,
        "cost": failed + passage(after, criterion.epsilon) - criterion.undisturbed,
    }


def _by_iteration(losses: Sequence[float], clocks: Clocks) -> list[float]:
    """Losses of whole iterations."""
    whole = np.array(losses[: len(losses) // clocks.count * clocks.count]).reshape(-1, clocks.count)
    found: list[float] = (whole.sum(axis=1) if clocks.summed else whole[:, -1]).tolist()
    return found


def report(options: Options, records: Sequence[Record]) -> Report:
    """Both intervals, and whether they overlap."""
    rows = [["panel", "real trials", "real cost", "simulated cost", "overlap"]]
    summary, panels = {}, []
    for panel in chosen(options.panels, PANELS, ("mlr", "mf")):
        real, simulated = (of_panel(records, f"{panel} {kind}") for kind in ("real", "simulated"))
        if not (real and simulated):
            continue
        measured, expected = (statistics.mean([float(one["cost"]) for one in some]) for some in (real, simulated))
        overlap = _overlap(measured, expected) if len(real) > 1 else "one run has no interval"
        rows.append([panel, str(len(real)), str(measured), str(expected), overlap])
        summary[panel] = {
            "trials": len(real),
            "real": measured.document,
            "simulated": expected.document,
            "overlap": overlap,
            "lost": statistics.mean([float(one["lost"]) for one in real]).document,
        }
        panels.append(_panel(panel, real, simulated))
    return Report({"panels": summary}, rows, Figure(panels, "Iteration cost: real processes and simulation"))


def _overlap(one: Estimate, other: Estimate) -> str:
    return "yes" if one.low <= other.high and other.low <= one.high else "no"


def _panel(panel: str, real: Sequence[Record], simulated: Sequence[Record]) -> Panel:
    series = [
        Series(name, [one["failed"] for one in some], [one["cost"] for one in some], style="points")
        for name, some in (("simulated", simulated), ("real", real))
    ]
    return Panel(title(panel), "failure iteration", "iteration cost", series)
