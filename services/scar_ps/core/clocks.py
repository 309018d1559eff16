"""Clocks: who has finished which, when one closes, and what is applied then (docs/protocol.md §4, §5).

And when gained blocks are settled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scar.placement import Epoch
from scar_ps.core.admission import Admission
from scar_ps.core.bsp_buffer import BufferedPush, rank_order, sum_parts
from scar_ps.core.core_state import CoreState
from scar_ps.core.events import ClockFinished, WorkerSettled
from scar_ps.core.push_steps import apply_part, expire_replayed, expire_rows


@dataclass(frozen=True, slots=True)
class ClockState:
    """``finished``: clocks that the sender has finished here.

    ``joins``: the clock that a push of now would join (BSP). ``settled``: every push that was acknowledged is
    applied, and where the next replica has to have it there, or is of an open clock.
    """

    epoch: int
    clock: int
    finished: int
    joins: int
    settled: bool


class ClockHandler:
    """Of one shard."""

    def __init__(self, state: CoreState, admission: Admission) -> None:
        self._state = state
        self._admission = admission
        self._unsettled = False  # blocks were gained, and a worker may owe them something
        self._settled_epochs: dict[str, int] = {}  # worker key -> newest epoch for which it has re-routed

    def finish_clock(self, event: ClockFinished) -> ClockState:
        """Close the clocks that everybody has finished."""
        barrier = self._state.barrier
        self._admission.admit_worker(event.sender, event.epoch)
        first = event.finished if event.first is None else event.first
        self._admission.replace_predecessors(event.sender, first)
        if event.heard is not None:
            barrier.add_loss(event.heard)
        barrier.mark_finished(event.sender.name, event.finished, event.epoch, event.part)
        if event.holds:
            self._state.confirm_pulls(event.sender.key, event.finished - 1)
        self.advance_clock()
        return self._clock_state(event.sender.name)

    def settle_worker(self, event: WorkerSettled) -> ClockState:
        """Without effect when the shard has gained blocks since the worker's epoch."""
        sender = event.sender
        self._admission.refuse_fenced(sender)
        newest = self._admission.check_epoch(max(event.epoch, self._state.number))
        self._admission.greet_worker(sender, newest)
        self._settled_epochs[sender.key] = max(self._settled_epochs.get(sender.key, 0), event.epoch)
        self._settle_blocks()
        return self._clock_state(sender.name)

    def _clock_state(self, worker: str) -> ClockState:
        state = self._state
        finished = max(state.barrier.finished_clocks(worker), state.proven_clock)
        owes = self._unsettled or state.bsp_buffer.any_late or state.chain.lacks_settled
        return ClockState(state.number, state.announced_clock, finished, state.clock, not owes)

    def advance_clock(self) -> None:
        """Close what can be closed: marks have come, or what stopped the clock is over."""
        state = self._state
        target = state.barrier.next_clock(state.awaited_workers, state.gained_epoch)
        if state.is_bsp:
            if state.ownership.any_frozen or state.is_stalled:
                return
            for clock in state.bsp_buffer.open_clocks(target):
                self._expose_blocks(clock)
                self._apply_clock(clock)
                state.barrier.close_clocks(clock + 1)
            if target > state.clock:
                self._expose_blocks(target - 1)
            state.chain.updates = max(state.clock, target)
            state.chain.pass_update(state.ownership.tables.values())
        state.barrier.close_clocks(target)
        self._settle_blocks()

    def _expose_blocks(self, clock: int) -> None:
        """This clock closes: which blocks could nobody give back as they are now?"""
        for store in self._state.ownership.tables.values():
            if store.marks is not None:
                store.marks.expose(clock)

    def apply_overdue(self) -> None:
        """Apply what came with blocks for clocks that are closed here, but were open at their former owner.

        Every worker had finished them, so all pushes of them are there; with the open clock they would come
        one clock late.
        """
        for clock in self._state.bsp_buffer.open_clocks(self._state.clock):
            self._apply_clock(clock)

    def _replay_clocks(self) -> None:
        """Do again, for blocks that were put back, each clock that is closed here: nobody has seen them yet.

        The rest of what workers owed them waits for its clock as all pushes do.
        """
        state = self._state
        owed = state.bsp_buffer.take_owed()
        closed = sorted({push.joined for push in owed if push.joined < state.clock})
        for clock in closed:
            self._expire_replayed(clock)
            mine = [push for push in owed if push.joined == clock]
            self._apply_pushes(clock, rank_order(mine, self._ranks))
        self._expire_replayed(state.clock - 1)
        for push in owed:
            if push.joined >= state.clock:
                state.bsp_buffer.add_push(push)
        state.ownership.end_replay()
        state.story.note(replayed=closed)

    def _expire_replayed(self, clock: int) -> None:
        for store in self._state.ownership.tables.values():
            expire_replayed(store, clock)

    @property
    def _ranks(self) -> dict[str, int]:
        return {name: rank for rank, name in enumerate(self._state.ranked_workers)}

    def _apply_clock(self, clock: int) -> None:
        self._apply_pushes(clock, self._state.bsp_buffer.take_clock(clock, self._ranks))

    def _apply_pushes(self, clock: int, pushes: Sequence[BufferedPush]) -> None:
        """One step of each table's rule of this clock (``assign``: one a push), for pushes in rank order."""
        state = self._state
        for store in state.ownership.tables.values():
            name = store.table.name
            expire_rows(store, clock)
            parts = [push.parts[name] for push in pushes if name in push.parts]
            if store.table.rule.kind != "assign" and parts:
                parts = [sum_parts(parts)]
            for part in parts:
                rule = store.table.rule.at_clock(clock)
                apply_part(part, rule, clock, state.progress)
        for push in pushes:
            state.sequences.raise_watermark(push.sender.key, push.push_id)

    def adopt_epoch(self, epoch: Epoch, gained: bool) -> None:
        """Follow a new epoch; ``gained``: this shard has gained blocks in it."""
        if gained:
            self._unsettled = True
        alive = {worker.key for worker in epoch.workers}
        self._settled_epochs = {key: number for key, number in self._settled_epochs.items() if key in alive}

    def _settle_blocks(self) -> None:
        state = self._state
        if not self._unsettled:
            return
        gained = state.gained_epoch  # a worker that came after it never pushed to those blocks
        for key, since in self._admission.first_epochs.items():
            if since <= gained and self._settled_epochs.get(key, 0) < gained:
                return
        if state.ownership.any_replaying:
            self._replay_clocks()
        # late pushes have push ids below the watermark: nothing may be saved before they are applied
        if state.bsp_buffer.any_late:
            return
        state.bsp_buffer.forget_applied()
        state.ownership.settle_blocks()
        self._unsettled = False
        state.chain.urgent = True
        state.story.note(settled_epoch=gained)
