"""Epochs: which may be adopted, what changes with one, what is to be loaded (docs/protocol.md §2, §6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from scar.errors import WrongJob
from scar.placement import Epoch
from scar.tables import Job
from scar_ps.core.actions import AnnounceEpoch, EndService
from scar_ps.core.admission import Admission
from scar_ps.core.block_data import BlockLoad
from scar_ps.core.block_memory import BlockMemory
from scar_ps.core.clocks import ClockHandler
from scar_ps.core.core_state import CoreState
from scar_ps.core.events import EpochReceived
from scar_ps.core.loads import LoadHandler
from scar_ps.core.relocation import Relocation


@dataclass(frozen=True, slots=True)
class AdoptedEpoch:
    """The shard's epoch now, and its blocks that are not there yet."""

    epoch: int
    loading: int


@dataclass(frozen=True, slots=True)
class EpochsMissing:
    """Epochs ``first`` to ``last`` say where blocks come from: they have to be handed in before.

    ``own_only``: just the newest of them in a row that this shard is part of.
    """

    first: int
    last: int
    own_only: bool


class EpochHandler:
    """Of one shard."""

    def __init__(
        self, state: CoreState, admission: Admission, clocks: ClockHandler, loads: LoadHandler
    ) -> None:
        self._state = state
        self._admission = admission
        self._clocks = clocks
        self._loads = loads

    def receive_epoch(self, event: EpochReceived) -> AdoptedEpoch | EpochsMissing:
        """Adopt an epoch. An older or equal one changes nothing."""
        state = self._state
        epoch = event.epoch
        job = event.job
        if not event.complete and not self._follows(epoch, job):
            return EpochsMissing(state.number + 1, epoch.number - 1, own_only=state.number == 0)
        before = state.number
        loads = self._adopt(epoch, job, event.memories)
        if state.dismissed:
            state.actions.append(AnnounceEpoch(state.number))
            state.actions.append(EndService(state.dismissed))
        else:
            self._announce(epoch.cause if state.number > before else "", loads)
            self._loads.start_due()
        return AdoptedEpoch(state.number, state.ownership.loading_blocks)

    def _announce(self, cause: str, loads: list[BlockLoad]) -> None:
        state = self._state
        blocks = sum(len(store) for store in state.ownership.tables.values())
        loading = sum(len(load.ids) for load in loads)
        state.actions.append(AnnounceEpoch(state.number, cause, blocks, loading))

    def _follows(self, epoch: Epoch, job: Job) -> bool:
        """Whether this epoch can be adopted without those before it.

        They say where blocks come from.
        """
        state = self._state
        if epoch.number <= state.number + 1 or self._exclusion(epoch):
            return True
        if epoch.shard_index(state.member.key) < 0:
            return True  # it gives nothing to this shard
        return state.number == 0 and state.ownership.covers_epoch(epoch, job)

    def _adopt(self, epoch: Epoch, job: Job, memories: Mapping[str, BlockMemory]) -> list[BlockLoad]:
        """Returns what is to be loaded."""
        state = self._state
        if epoch.number <= state.number or state.dismissed:
            return []
        if epoch.job != job.name or (state.job is not None and state.job.name != job.name):
            raise WrongJob(f"{state.member.key} belongs to another job than {epoch.job}")
        excluded = self._exclusion(epoch)
        if excluded:
            state.dismiss(excluded)
            return []
        if epoch.shard_index(state.member.key) < 0:
            return []
        epoch.ensure_valid(state.job or job)
        return self._change_epoch(epoch, job, memories)

    def _exclusion(self, epoch: Epoch) -> str:
        """Why this shard may never serve again after this epoch; empty: it may."""
        member = self._state.member
        if {member.incarnation, member.key} & set(epoch.fenced):
            return f"epoch {epoch.number} has fenced {member.key}"
        if self._state.epoch is not None and epoch.shard_index(member.key) < 0:
            return f"{member.key} is not part of epoch {epoch.number}"
        return ""

    def _change_epoch(self, epoch: Epoch, job: Job, memories: Mapping[str, BlockMemory]) -> list[BlockLoad]:
        state = self._state
        was_empty = state.ownership.value_bytes == 0
        former = state.epoch.workers if state.epoch is not None else ()
        state.ownership.keep_incoming(state.replicas.find_incoming(job, epoch))
        loads, relocations = state.ownership.adopt_epoch(epoch, job, memories)
        if was_empty:  # nothing of ours waits for a clock; without workers no mark would ever raise it
            state.barrier.clock = max(state.barrier.clock, epoch.clock)
        gained = any(relocation.gained.any() for relocation in relocations.values())
        if gained:
            state.gained_epoch = epoch.number
        self._follow_pulls(epoch, relocations, any_left=not set(former) <= set(epoch.workers))
        self._note_finished_clocks(epoch)
        state.job = job
        state.epoch = epoch
        state.adopted.append((epoch.number, state.clock))
        state.bsp_buffer.adopt_epoch(relocations, state.clock if state.is_stalled else 0)
        self._admission.drop_replaced()
        state.round.adopt_epoch(relocations)
        if epoch.resave:
            state.round.abandon_round()
            state.round.forget_committed()
            state.ownership.forget_saved()
        self._change_workers(epoch, gained)
        self._clocks.apply_overdue()
        state.replicas.adopt_epoch(epoch)
        state.chain.adopt_epoch(job, epoch, gained)
        state.traffic.begin(state.ownership.tables, state.now)
        state.publish_view()
        self._clocks.advance_clock()
        return loads

    def _follow_pulls(self, epoch: Epoch, relocations: Mapping[str, Relocation], any_left: bool) -> None:
        """What a worker that left had pulled may be in nobody's hands; what was put back was never pulled."""
        state = self._state
        gained = {name: moved.new.ids[moved.gained] for name, moved in relocations.items()}
        state.pull_notes.adopt_epoch([worker.key for worker in epoch.workers], gained)
        if any_left or any(len(blocks) for blocks in gained.values()):
            state.forget_holders()
        if any_left:
            for store in state.ownership.tables.values():
                if store.marks is not None:
                    store.marks.note_change(slice(None))

    def _note_finished_clocks(self, epoch: Epoch) -> None:
        """A block in which a clock is closed proves that every worker has finished it, though the shard that
        had the only mark of one may have died together with that worker.
        """
        state = self._state
        if epoch.rollback:
            state.proven_clock = 0
        elif state.is_bsp:
            state.proven_clock = max([state.proven_clock, *(group.clock for group in epoch.moved)])

    def _change_workers(self, epoch: Epoch, gained: bool) -> None:
        state = self._state
        if epoch.rollback:
            state.bsp_buffer.clear()
            state.sequences.watermark.clear()
            state.barrier.drop_parts()
        state.sequences.keep_workers([worker.key for worker in epoch.workers])
        self._admission.enroll_workers(epoch)
        self._clocks.adopt_epoch(epoch, gained)
