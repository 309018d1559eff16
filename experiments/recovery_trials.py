"""What failures cost a training: trials of figures 7 and 8, which share what comes before the failure.

For each trial one failure iteration is drawn, then every *case* (a policy of saving, a way of recovering, a
lost fraction) strikes at it, and the training goes on from each perturbed state until its loss reaches a
criterion, which is taken from the undisturbed run. The iteration cost is how many more iterations that takes
than without a failure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from experiments.convergence import ConvergenceCriterion, losses_until, passage_time
from experiments.panels import load_workload
from experiments.simulation import (
    BlockLoss,
    CheckpointSimulator,
    copy_state,
    initial_state,
    perturbation_norm,
    restore_values,
)
from experiments.workloads import TrainingRun, Workload
from scar.errors import ConfigError
from scar.strategies import variant_options
from scar.tables import Checkpoint, Job, Table, rows
from scar_compare.records import TrialRecord
from scar_compare.trial_plans import recorded_as

PATIENCE = 4  # horizons after which a run that has not come back is given up
CONTROL = "control"
GAIN_OF_RANDOM = 0.97  # a random training fluctuates, near its end by more than it gains; docs/experiments.md


@recorded_as("Case")
@dataclass(frozen=True)
class RecoveryCase:
    """One way to save, to fail and to recover.

    ``recovery``: a name of :func:`scar.strategies.variant_options`. ``slots``: what no strategy does: lost
    blocks get back their exact values, with slots "saved" (as they were recovered) or "reset" (none).
    """

    name: str
    checkpoint: Checkpoint
    recovery: str
    lost: float
    slots: str = ""


@recorded_as("Trials")
@dataclass(frozen=True)
class TrajectoryTrials:
    """``numbers``: trials of one trajectory, which ``trajectory`` numbers.

    ``horizon``: undisturbed iterations whose gain sets the criterion. ``mean``: of the geometric failure
    iteration, as a share of the iterations that the undisturbed run needs. ``gain``: the share of the
    horizon's gain that counts as converged; None: what suits the model. ``pending``: a failure finds the
    round that is due at that moment not done yet. ``unweighted``: distances are compared without the weights
    of the model's tables. ``block_rows``: so many rows are one block, and are saved and lost together.
    """

    panel: str
    thin: int
    cases: tuple[RecoveryCase, ...]
    seed: int
    trajectory: int
    numbers: tuple[int, ...]
    horizon: int = 60
    mean: float = 0.5
    gain: float | None = None
    pending: bool = False
    unweighted: bool = False
    block_rows: int = 1


def run_trials(trials: TrajectoryTrials) -> Iterator[TrialRecord]:
    """One record a trial: costs and perturbations of every case."""
    model = load_workload(trials.panel, trials.thin)
    job, criterion = prepare_job(model, trials)
    failures = {number: failure_iteration(trials, number, criterion.undisturbed) for number in trials.numbers}
    savers_of = sorted({(case.checkpoint, case.recovery) for case in trials.cases}, key=repr)
    trunk = TrainingRun(initial_state(job), stream=job.seed)
    savers = {
        key: CheckpointSimulator(with_recovery(replace(job, checkpoint=key[0]), key[1]), trunk.state)
        for key in savers_of
    }
    pending = _PendingRuns(model, criterion, PATIENCE * trials.horizon)
    pending.pass_by(trunk)
    for clock in range(1, max(failures.values()) + 1):
        model.advance_runs([trunk])
        pending.pass_by(trunk)
        failing = [number for number, at in failures.items() if at == clock]
        if not trials.pending:
            hold_rounds(savers.values(), clock)
        for number in failing:
            pending.add_trial(number, *strike_cases(trials, number, trunk, savers))
        if trials.pending:
            hold_rounds(savers.values(), clock)
        yield from pending.finish_trials(model.together)
    yield from pending.finish_trials(0)


def with_recovery(job: Job, recovery: str) -> Job:
    """``recovery`` as in :class:`RecoveryCase`."""
    options: dict[str, Any] = dict(variant_options(recovery))
    return replace(job, **options)


def hold_rounds(savers: Iterable[CheckpointSimulator], clock: int) -> None:
    for saver in savers:
        saver.run_due_round(clock)


def prepare_job(model: Workload, trials: TrajectoryTrials) -> tuple[Job, ConvergenceCriterion]:
    """The job of this trajectory, and when it has converged.

    Its seed makes x(0) and is the stream of its random numbers.
    """
    job = replace(model.job, seed=seed_of(trials, "trajectory", trials.trajectory))
    if trials.unweighted:
        job = replace(job, tables=tuple(table.unweighted for table in job.tables))
    if trials.block_rows > 1:
        job = replace(job, tables=tuple(join_rows(table, trials.block_rows) for table in job.tables))
    run = TrainingRun(initial_state(job), stream=job.seed)
    losses = np.array([model.advance_runs([run])[0] for _ in range(trials.horizon)])
    gain = trials.gain or (GAIN_OF_RANDOM if model.random else 1.0)
    epsilon = float(losses[-1] + (1 - gain) * (losses[0] - losses[-1]))
    undisturbed = int(np.flatnonzero(losses <= epsilon)[0]) + 1
    if undisturbed < 2:
        raise ConfigError(
            f"{trials.panel} has converged after one iteration", "Choose a larger gain or a longer horizon"
        )
    return job, ConvergenceCriterion(epsilon, tuple(losses[:undisturbed].tolist()))


def join_rows(table: Table, count: int) -> Table:
    """The same table with blocks of so many rows, the last may have fewer. A block's weight is the root of
    the mean of its rows' squares, as its squared distance is the sum of theirs.

    Raises :class:`ConfigError` for a table whose blocks are no rows.
    """
    if not table.has_row_blocks:
        raise ConfigError(
            f"the blocks of table {table.name} are no rows",
            "Leave --block-rows out, or choose panels of mlr or mf",
        )
    weights = None
    if table.weights is not None:
        starts = np.arange(0, len(table.weights), count)
        sizes = np.diff(np.append(starts, len(table.weights)))
        weights = np.sqrt(np.add.reduceat(table.weights.astype(np.float64) ** 2, starts) / sizes)
    return Table(
        table.name,
        table.shape,
        dtype=table.dtype_name,
        rule=table.rule,
        init=table.init,
        blocks=rows(count),
        norm=table.norm,
        weights=weights,
    )


def failure_iteration(trials: TrajectoryTrials, number: int, undisturbed: int) -> int:
    """Geometric, as in the paper, and before the training is over."""
    random = np.random.default_rng(seed_of(trials, "failure", number))
    at = undisturbed
    while at >= undisturbed:
        at = int(random.geometric(min(1.0, 1 / (trials.mean * undisturbed))))
    return at


def strike_cases(
    trials: TrajectoryTrials,
    number: int,
    trunk: TrainingRun,
    savers: Mapping[tuple[Checkpoint, str], CheckpointSimulator],
) -> tuple[dict[str, TrainingRun], dict[str, float]]:
    """Every case strikes now: the runs that go on from it, and the sizes of the perturbations.

    Cases that lose the same fraction lose the same blocks, so that only the policy differs between them.
    """
    runs = {}
    norms = {}
    stream = seed_of(trials, "stream", number)
    runs[CONTROL] = TrainingRun(copy_state(trunk.state), trunk.clock, stream)
    for case in trials.cases:
        random = np.random.default_rng([seed_of(trials, "lost", number), round(case.lost * 1e9)])
        saver = savers[case.checkpoint, case.recovery]
        lost = BlockLoss(case.lost).draw_lost(saver.job, random)
        state = saver.recover_lost(lost)
        if case.slots:
            restore_values(state, trunk.state, lost, reset=case.slots == "reset")
        norms[case.name] = perturbation_norm(trunk.state, state)
        runs[case.name] = TrainingRun(state, trunk.clock, stream)
    return runs, norms


class _PendingRuns:
    """Runs on their way to the criterion.

    Equal states are run once; many are advanced together where that is faster. Where iterations draw no
    random numbers, a state that the undisturbed run has passed by is not run at all: full recovery and the
    control cost nothing then.
    """

    def __init__(self, model: Workload, criterion: ConvergenceCriterion, patience: int) -> None:
        self._model = model
        self._criterion = criterion
        self._patience = patience
        self._trials: dict[int, tuple[int, dict[str, bytes], dict[str, float]]] = {}
        self._waiting: dict[bytes, TrainingRun] = {}
        self._remaining: dict[bytes, float] = {}  # iterations, by digest of the state

    def pass_by(self, trunk: TrainingRun) -> None:
        """The undisturbed run is here: how many iterations it still needs is known."""
        if not self._model.random:
            self._remaining[self._digest_of(trunk)] = self._criterion.iterations_left(trunk.clock)

    def add_trial(self, number: int, runs: Mapping[str, TrainingRun], norms: dict[str, float]) -> None:
        """``runs``: by case, the control among them; ``norms``: of their perturbations."""
        digests = {name: self._digest_of(run) for name, run in runs.items()}
        self._trials[number] = runs[CONTROL].clock, digests, norms
        for name, digest in digests.items():
            if digest not in self._remaining:
                self._waiting.setdefault(digest, runs[name])

    def _digest_of(self, run: TrainingRun) -> bytes:
        """Equal for states from which the training goes on in the same way."""
        found = hashlib.blake2b(digest_size=16)
        if self._model.random:
            found.update(f"{run.stream} {run.clock}".encode())
        for store in run.state.values():
            for array in (store.values, *store.slots.values(), store.steps):
                found.update(array.data.cast("B"))
        return found.digest()

    def finish_trials(self, least: int) -> Iterator[TrialRecord]:
        """Run what is waiting, if it is at least ``least`` runs, and report every trial."""
        if len(self._waiting) < least:
            return
        self._run_waiting()
        for number, (clock, digests, norms) in self._trials.items():
            remaining = {name: self._remaining[digest] for name, digest in digests.items()}
            yield self._make_record(number, clock, remaining, norms)
        self._trials = {}

    def _run_waiting(self) -> None:
        digests = list(reversed(self._waiting))
        runs = [self._waiting[digest] for digest in digests]
        losses = losses_until(self._model, runs, self._criterion.epsilon, self._patience)
        for digest, some in zip(digests, losses, strict=True):
            self._remaining[digest] = passage_time(some, self._criterion.epsilon)
        self._waiting = {}

    def _make_record(
        self, number: int, clock: int, remaining: Mapping[str, float], norms: Mapping[str, float]
    ) -> TrialRecord:
        return {
            "trial": number,
            "failed": clock,
            "undisturbed": self._criterion.undisturbed,
            "costs": {name: remaining[name] - remaining[CONTROL] for name in norms},
            "norms": dict(norms),
            "given_up": sorted(name for name in norms if remaining[name] >= self._patience),
        }


def seed_of(trials: TrajectoryTrials, what: str, number: int) -> int:
    """Independent numbers for every purpose, the same whatever else is run beside."""
    text = f"{trials.seed} {trials.panel} {what} {number}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=7).digest())
