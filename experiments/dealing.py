"""What figures 7 and 8 share: how their trials are dealt out, and which are enough."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from experiments.failures import Case, Trials, carry_out
from experiments.panels import PANELS, chosen, split
from experiments.records import Record
from experiments.runner import Batch, Options
from scar.tables import Checkpoint

TRIALS = {"mlr": 100, "mf": 100}
TRIALS_OF_RANDOM = 30
QUICK = {"mlr": 8, "mf": 8, "lda": 8}
QUICK_OF_NETWORK = 1
THIN = {"mlr-covtype": 50, "mlr-mnist": 10, "mf-movielens": 4, "mf-jester": 20, "lda-20newsgroups": 10}  # only for a quick look
BATCH = 10  # trials of one trajectory, in one process


def batches(options: Options, cases: tuple[Case, ...]) -> list[Batch]:
    """All trials of all panels; cheap panels first, so that something can be seen soon."""
    found = []
    for panel in chosen(options.panels, PANELS):
        thin = THIN.get(panel, 1) if options.quick else 1
        for trajectory, first in enumerate(range(0, count(options, panel), BATCH)):
            numbers = tuple(range(first, min(first + BATCH, count(options, panel))))
            trials = trials_of(options, panel, thin, cases, trajectory)
            found.append(Batch(panel, numbers, partial(_work, trials)))
    return found


def trials_of(options: Options, panel: str, thin: int, cases: tuple[Case, ...], trajectory: int) -> Trials:
    """The trials of a trajectory; which numbers is said later."""
    return Trials(
        panel,
        thin,
        cases,
        options.seed,
        trajectory,
        (),
        horizon=options.horizon,
        mean=options.mean,
        gain=options.gain,
        pending=options.pending,
        unweighted=options.unweighted,
    )


def _work(trials: Trials, numbers: tuple[int, ...]) -> Iterator[Record]:
    return carry_out(replace(trials, numbers=numbers))


def count(options: Options, panel: str) -> int:
    """Trials of a panel."""
    model = split(panel)[0]
    if options.trials:
        return options.trials
    if options.quick:
        return QUICK.get(model, QUICK_OF_NETWORK)
    return TRIALS.get(model, TRIALS_OF_RANDOM)


def lost(options: Options, best: Sequence[float]) -> list[float]:
    """The lost fractions of a figure, the smallest first."""
    return sorted(set(options.lost or best))


def full_checkpoints(period: int) -> Checkpoint:
    """Everything, every ``period`` iterations: what full recovery needs."""
    return Checkpoint("full", fraction=1.0, period=period)
