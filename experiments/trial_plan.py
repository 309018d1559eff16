"""What figures 7 and 8 share: how their trials are dealt out, and which are enough."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from experiments.panels import PANELS, chosen_panels, split_panel
from experiments.recovery_trials import RecoveryCase, TrajectoryTrials, run_trials
from scar.tables import Checkpoint
from scar_compare.experiment import ExperimentOptions, TrialBatch
from scar_compare.records import TrialRecord
from scar_compare.trial_plans import recorded_as

TRIALS = {"mlr": 100, "mf": 100}
TRIALS_OF_RANDOM = 30
QUICK = {"mlr": 8, "mf": 8, "lda": 8}
QUICK_OF_NETWORK = 1
# only for a quick look
THIN = {"mlr-covtype": 50, "mlr-mnist": 10, "mf-movielens": 4, "mf-jester": 20, "lda-20newsgroups": 10}
BATCH = 10  # trials of one trajectory, in one process


def trial_batches(options: ExperimentOptions, cases: tuple[RecoveryCase, ...]) -> list[TrialBatch]:
    """All trials of all panels; cheap panels first, so that something can be seen soon."""
    found = []
    for panel in chosen_panels(options.panels, PANELS):
        thin = THIN.get(panel, 1) if options.quick else 1
        for trajectory, first in enumerate(range(0, trial_count(options, panel), BATCH)):
            numbers = tuple(range(first, min(first + BATCH, trial_count(options, panel))))
            trials = trials_of(options, panel, thin, cases, trajectory)
            found.append(TrialBatch(panel, numbers, partial(_run_batch, trials)))
    return found


def trials_of(
    options: ExperimentOptions, panel: str, thin: int, cases: tuple[RecoveryCase, ...], trajectory: int
) -> TrajectoryTrials:
    """The trials of a trajectory; which numbers is said later."""
    return TrajectoryTrials(
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
        block_rows=options.block_rows,
    )


@recorded_as("_work")
def _run_batch(trials: TrajectoryTrials, numbers: tuple[int, ...]) -> Iterator[TrialRecord]:
    return run_trials(replace(trials, numbers=numbers))


def trial_count(options: ExperimentOptions, panel: str) -> int:
    """Trials of a panel."""
    model = split_panel(panel)[0]
    if options.trials:
        return options.trials
    if options.quick:
        return QUICK.get(model, QUICK_OF_NETWORK)
    return TRIALS.get(model, TRIALS_OF_RANDOM)


def lost_fractions(options: ExperimentOptions, best: Sequence[float]) -> list[float]:
    """The lost fractions of a figure, the smallest first."""
    return sorted(set(options.lost or best))


def full_checkpoints(period: int) -> Checkpoint:
    """Everything, every ``period`` iterations: what full recovery needs."""
    return Checkpoint("full", fraction=1.0, period=period)
