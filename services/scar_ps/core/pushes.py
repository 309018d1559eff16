"""Pushes and pulls: what is applied when, and what may be seen of it (docs/protocol.md §3, §11)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from scar.errors import ClockPassed, InvalidRequest
from scar.losses import LossPoint
from scar_ps.core.admission import Admission
from scar_ps.core.block_store import StoreSlice
from scar_ps.core.bsp_buffer import BufferedPush
from scar_ps.core.core_state import CoreState
from scar_ps.core.events import AcknowledgementDue, PullRequested, PushReceived
from scar_ps.core.push_steps import apply_part
from scar_ps.core.requests import MustWait


@dataclass(frozen=True, slots=True)
class PushApplied:
    """``duplicate``: it had been applied before, and nothing was done.

    ``joins``: the clock with which it is applied (BSP), unless it is ``owed``: to lost blocks, of a closed
    clock, and applied with that one once all workers have settled. ``update``: to be handed to
    AcknowledgementDue where ``delayed``.
    """

    duplicate: bool
    epoch: int
    clock: int
    joins: int
    owed: bool
    update: int
    delayed: bool


@dataclass(frozen=True, eq=False, slots=True)
class PulledBlocks:
    """Where the values are, in ``epoch`` at ``clock``. ``loss``: of the newest closed clock that has one.

    ``contents``: of each part, what it contains; None: that was not asked, or is not the same for all.
    ``with_metrics``: the answer says what was logged in that clock, too.
    """

    parts: Sequence[StoreSlice]
    epoch: int
    clock: int
    loss: LossPoint | None
    contents: Sequence[Mapping[str, int] | None]
    with_metrics: bool = False


class PushHandler:
    """Of one shard."""

    def __init__(self, state: CoreState, admission: Admission) -> None:
        self._state = state
        self._admission = admission

    def receive_push(self, event: PushReceived) -> PushApplied:
        state = self._state
        duplicate, owed = self._apply_push(event)
        # what is acknowledged before its clock is closed is sent again (BSP)
        chain = state.chain
        lags = chain.acknowledgements_wait and chain.replicated < chain.required_update(chain.updates)
        delayed = (lags and not state.is_bsp) or self._waits_for_store
        return PushApplied(
            duplicate, state.number, state.announced_clock, state.clock, owed, state.chain.updates, delayed
        )

    def _apply_push(self, event: PushReceived) -> tuple[bool, bool]:
        """Apply (BSP: keep) a push. Returns whether it was a duplicate, and nothing was done; and whether it
        is owed: of a duplicate nobody knows any more, and ``ClockState.settled`` decides.
        """
        state = self._state
        push = event.push
        self._admission.admit_worker(push.sender, push.epoch)
        if state.sequences.is_duplicate(push.sender, push.seq):
            state.counts.duplicates += 1
            return True, push.clock < state.clock
        if state.is_stalled:
            raise MustWait("a checkpoint to be durable")
        self._admission.require_available(list(push.parts.values()))
        state.sequences.record_push(push.sender, push.seq)
        state.counts.pushes += 1
        state.traffic.count(push.parts.values())
        if state.is_bsp:
            buffered = BufferedPush(push.sender, push.push_id, push.clock, push.clock, push.parts)
            return False, state.bsp_buffer.add_received(buffered, state.clock)
        state.note_pushed(push.sender.key, push.parts, push.clock)
        for part in push.parts.values():
            rule = part.store.table.rule.at_clock(push.clock, push.rate)
            apply_part(part, rule, state.clock, state.progress)
        state.sequences.raise_watermark(push.sender.key, push.push_id)
        state.chain.updates += 1
        state.chain.pass_update(state.ownership.tables.values())
        return False, False

    @property
    def _waits_for_store(self) -> bool:
        job = self._state.job
        return job is not None and job.strategy.stores

    def await_acknowledgement(self, event: AcknowledgementDue) -> None:
        """Wait until this update may be acknowledged.

        BSP: what was not announced need not wait, it is sent again.
        """
        state = self._state
        chain = state.chain
        waits = chain.acknowledgements_wait and not state.is_bsp
        if waits and chain.replicated < chain.required_update(event.update):
            raise MustWait(f"update {event.update} waits for the next replica of {state.member.name}")
        if self._waits_for_store and state.round.stored < event.update:
            raise MustWait(f"update {event.update} waits for the store")

    def find_pulled(self, event: PullRequested) -> PulledBlocks:
        state = self._state
        if event.sender.name:
            self._admission.admit_worker(event.sender, event.epoch)
        else:
            self._admission.check_epoch(event.epoch)
        self._admission.require_clock(event.min_clock)
        self._require_loss(event.loss_clock)
        if state.announced_clock < event.min_clock:
            raise MustWait(f"clock {event.min_clock} waits for the next replica of {state.member.name}")
        parts = self._admission.resolve_blocks(event.wanted)
        self._admission.require_available(parts)
        if not event.unsettled:
            self._admission.require_replayed(parts)
        if not event.sender.name:
            parts = [replace(part, unknown_zero=True) for part in parts]
        contents = [self._contents(part) if event.contents else None for part in parts]
        for part, contained in zip(parts, contents, strict=True):
            if contained is not None and event.sender.name:
                state.note_pull(event.sender.key, part, event.clock)
            if contained is not None and not state.is_bsp:  # pushes are applied while values are sent
                part.store = part.store.freeze()
        if event.exact >= 0:
            self._require_exact(event.exact)
            parts = [replace(part, store=part.store.freeze()) for part in parts]
        state.traffic.count(parts)
        loss = state.barrier.last_loss
        return PulledBlocks(parts, state.number, state.announced_clock, loss, contents, event.loss_clock > 0)

    def _contents(self, part: StoreSlice) -> Mapping[str, int] | None:
        """None while something that the watermark claims may be missing, and where nobody keeps it."""
        state = self._state
        if state.ownership.any_unsettled or state.epoch is None:
            return None
        if not state.is_bsp and (part.positions is not None or part.rows is not None):
            return None
        watermark = state.sequences.watermark
        state.ownership.forget_overtaken(watermark, [worker.key for worker in state.epoch.workers])
        contents = state.ownership.contents_of(part, watermark)
        return None if contents is None else dict(contents)

    def _require_exact(self, clock: int) -> None:
        """Every push of the clocks below is in the values, and none of a later one."""
        state = self._state
        if not state.is_bsp:
            raise InvalidRequest(
                "without BSP no values are of one clock",
                "Pull the newest ones, or train with consistency='bsp'",
            )
        if state.clock > clock:
            raise ClockPassed(f"clock {clock} is closed, the open one is {state.clock}")
        if state.announced_clock < clock or state.bsp_buffer.any_late or state.ownership.any_unsettled:
            raise MustWait(f"exactly clock {clock}")

    def _require_loss(self, clock: int) -> None:
        state = self._state
        if not clock:
            return
        missing = state.barrier.awaited_parts(clock - 1, state.awaited_workers)
        if missing:
            raise MustWait(f"the loss of clock {clock - 1} waits for {', '.join(missing)}")
