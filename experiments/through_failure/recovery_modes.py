"""The families, and what each keeps to come back from. The services' own cores recover: `simulation.py`.

A *backup* watches one training: it hears of every update, and says what the state is when the server is back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from experiments.simulation import (
    CheckpointSimulator,
    LostBlocks,
    ModelState,
    copy_state,
    initial_state,
    no_progress,
)
from scar.tables import Checkpoint, Job
from scar_compare.trial_plans import RECORDED_NAME, recorded_as
from scar_ps.core.update_rules import apply_push

PERIOD = 50  # gradients between two checkpoints or copies, a tenth of a run, as in the paper
FRACTION = 0.125  # r of the priority rounds: as many bytes in PERIOD gradients as a checkpoint
CHAIN = 3  # servers that hold a copy, the first included
# more waiting gradients than this are one step, at a tenth of the learning rate
BACKLOG = 25
SMALL_RATE = 0.1
QUEUE = 1000  # gradients that may wait; the oldest are dropped


@recorded_as("Mode")
@dataclass(frozen=True)
class RecoveryMode:
    """``waits``: workers stand still without a server. ``takeover``: another server goes on at once.
    ``keeps``: what workers had under way counts, as it was computed from what comes back.
    """

    name: str
    backup: Callable[[Job, ModelState], StateBackup] = field(metadata={RECORDED_NAME: "keeper"})
    synchronous: bool
    waits: bool = True
    takeover: bool = False
    keeps: bool = False


@recorded_as("Keeper")
class StateBackup:
    """Nothing is kept, so everything is x(0) again; the others keep more.

    ``copies``: of the model in the memory of servers; ``written``: bytes, in all.
    """

    copies = 1

    def __init__(self, job: Job, state: ModelState) -> None:
        self.job = job
        self.state = state
        self.written = 0
        self.model_bytes = sum(store.values.nbytes for store in state.values())

    def after_updates(self, gradients: int) -> None:
        """So many gradients are in the model now."""

    def restored_state(self, _lost: LostBlocks) -> ModelState:
        """The state after these blocks died and came back."""
        return initial_state(self.job)


class CheckpointBackup(StateBackup):
    """Rounds of ``job.checkpoint``; by ``job.recovery`` everything goes back, or only what was lost."""

    copies = 2  # a shard keeps what it saved last

    def __init__(self, job: Job, state: ModelState) -> None:
        super().__init__(job, state)
        self._checkpoints = CheckpointSimulator(job, state)

    def after_updates(self, gradients: int) -> None:
        if gradients % self.job.checkpoint.every == 0:
            self.written += round(self.job.checkpoint.effective_fraction * self.model_bytes)
        self._checkpoints.run_due_round(gradients)

    def restored_state(self, lost: LostBlocks) -> ModelState:
        return self._checkpoints.recover_lost(lost)


class ChainBackup(StateBackup):
    """A copy on the next server every ``PERIOD`` gradients. ``late``: it is there one update later."""

    copies = CHAIN

    def __init__(self, job: Job, state: ModelState, late: bool) -> None:
        super().__init__(job, state)
        self._late = late
        self._copy = copy_state(state)
        self._coming: ModelState | None = None

    def after_updates(self, gradients: int) -> None:
        if self._coming is not None:
            self._copy = self._coming
            self._coming = None
        if gradients % PERIOD == 0:
            self.written += (CHAIN - 1) * self.model_bytes
            if self._late:
                self._coming = copy_state(self.state)
            else:
                self._copy = copy_state(self.state)

    def restored_state(self, lost: LostBlocks) -> ModelState:
        back = copy_state(self.state)
        for table, ids in lost.items():
            at = back[table].find_blocks(ids)
            back[table].install_blocks(at, self._copy[table].copy_blocks(at))
        return back


@recorded_as("Outside")
class ExternalStore(StateBackup):
    """Stateless servers: the model lives in a store in memory, and nothing of it dies with a server."""

    def after_updates(self, _gradients: int) -> None:
        self.written += self.model_bytes

    def restored_state(self, _lost: LostBlocks) -> ModelState:
        return copy_state(self.state)


class FlawedCheckpoints(CheckpointBackup):
    """The published code: only the last of the planned kills is followed by a restore.

    That is its ``kill_times <= 0``.
    """

    def __init__(self, job: Job, state: ModelState, kills: int) -> None:
        super().__init__(job, state)
        self._kills = kills

    def restored_state(self, lost: LostBlocks) -> ModelState:
        self._kills -= 1
        if self._kills > 0:
            return initial_state(replace(self.job, seed=self.job.seed + 1))
        return super().restored_state(lost)


@recorded_as("full")
def full_checkpoints(job: Job, state: ModelState) -> StateBackup:
    return CheckpointBackup(_with_full(job), state)


@recorded_as("priority")
def priority_rounds(job: Job, state: ModelState) -> StateBackup:
    return CheckpointBackup(_with_priority(job), state)


@recorded_as("forgetful")
def flawed_checkpoints(job: Job, state: ModelState) -> StateBackup:
    return FlawedCheckpoints(_with_full(job), state, kills=2)


def sync_workers(job: Job, state: ModelState) -> StateBackup:
    """Workers hold what they pulled last, and beside it the rounds of ``partial`` go on."""
    return CheckpointBackup(_with_workers(job, "bsp"), state)


def async_workers(job: Job, state: ModelState) -> StateBackup:
    return CheckpointBackup(_with_workers(job, "asp"), state)


def sync_chain(job: Job, state: ModelState) -> StateBackup:
    return ChainBackup(job, state, late=False)


def async_chain(job: Job, state: ModelState) -> StateBackup:
    return ChainBackup(job, state, late=True)


def _with_priority(job: Job) -> Job:
    return replace(job, checkpoint=Checkpoint("priority", FRACTION, PERIOD), recovery="partial")


def _with_workers(job: Job, consistency: str) -> Job:
    return replace(_with_priority(job), sources="workers", consistency=consistency)


def _with_full(job: Job) -> Job:
    return replace(job, checkpoint=Checkpoint("full", 1.0, PERIOD), recovery="full")


MODES = (
    RecoveryMode("async-checkpoint", full_checkpoints, synchronous=False),
    RecoveryMode("async-chain", async_chain, synchronous=False, takeover=True),
    RecoveryMode("stateless", ExternalStore, synchronous=False, waits=False),
    RecoveryMode("async-partial", priority_rounds, synchronous=False),
    RecoveryMode("async-workers", async_workers, synchronous=False, keeps=True),
    RecoveryMode("sync-checkpoint", full_checkpoints, synchronous=True),
    RecoveryMode("sync-chain", sync_chain, synchronous=True, takeover=True),
    RecoveryMode("sync-partial", priority_rounds, synchronous=True),
    RecoveryMode("sync-workers", sync_workers, synchronous=True, keeps=True),
)
UNDISTURBED = (
    RecoveryMode("async", StateBackup, synchronous=False),
    RecoveryMode("sync", StateBackup, synchronous=True),
)
FLAWED = (
    RecoveryMode("async-checkpoint", flawed_checkpoints, synchronous=False),
    RecoveryMode("sync-checkpoint", flawed_checkpoints, synchronous=True),
)


def install_state(state: ModelState, restored: ModelState) -> None:
    """Put it in place: whoever watches ``state`` watches its memory."""
    for name, store in restored.items():
        at = np.arange(len(store))
        state[name].install_blocks(at, store.copy_blocks(at))


def apply_backlog(state: ModelState, waiting: list[dict[str, np.ndarray]]) -> None:
    """The paper's way to apply what came while no server was there."""
    if len(waiting) <= BACKLOG:
        for gradients in waiting:
            apply_gradients(state, gradients)
    else:
        apply_gradients(
            state, {name: SMALL_RATE * np.sum([one[name] for one in waiting], axis=0) for name in waiting[0]}
        )


def apply_gradients(state: ModelState, gradients: dict[str, np.ndarray]) -> None:
    """One step by each table's rule."""
    for name, gradient in gradients.items():
        apply_push(state[name], None, np.ascontiguousarray(gradient, np.float32).reshape(-1), no_progress)
