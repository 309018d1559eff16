"""Whether a request may be served: its epoch, its sender, its blocks, its clock (docs/protocol.md §2).

Nothing here changes a value. What cannot be served yet raises :class:`MustWait`.
"""

from __future__ import annotations

from collections.abc import Sequence

from scar.errors import Fenced, NotServing, StaleEpoch
from scar.placement import Epoch
from scar_ps.core.block_store import StoreSlice
from scar_ps.core.core_state import CoreState
from scar_ps.core.requests import MustWait, PulledParts, Sender, WantedBlocks, WantedRows


class Admission:
    """Of one shard."""

    def __init__(self, state: CoreState) -> None:
        self._state = state
        self._first_epochs: dict[str, int] = {}  # worker key -> epoch in which this shard first heard of it
        # worker name -> the incarnation that gave a mark last, and its first clock
        self._beginnings: dict[str, tuple[str, int]] = {}

    @property
    def first_epochs(self) -> dict[str, int]:
        """Workers of the epoch by key, with the epoch in which this shard first heard of each."""
        return self._first_epochs

    def check_epoch(self, epoch: int) -> Epoch:
        """The shard's epoch, which is the request's. Raises :class:`StaleEpoch`, :class:`NotServing`."""
        state = self._state
        if state.dismissed:  # that is this shard's end; the sender lives, and hears of the epoch soon
            raise NotServing(state.dismissed)
        if state.epoch is None:
            state.heard_epoch = max(state.heard_epoch, epoch)
            raise NotServing(f"{state.member.name} has no epoch yet")
        if epoch > state.number:
            state.heard_epoch = max(state.heard_epoch, epoch)
            raise NotServing(f"{state.member.name} knows epoch {state.number}, not yet {epoch}")
        if epoch < state.number:
            state.counts.stale += 1
            raise StaleEpoch(
                f"epoch {epoch} is over, {state.member.name} is in epoch {state.number}", epoch=state.number
            )
        return state.epoch

    def admit_worker(self, sender: Sender, epoch: int) -> None:
        """Raises unless the epoch is this shard's and the sender a worker of it."""
        self.refuse_fenced(sender)
        self.greet_worker(sender, self.check_epoch(epoch))

    def refuse_fenced(self, sender: Sender) -> None:
        state = self._state
        if state.epoch and {sender.incarnation, sender.key} & set(state.epoch.fenced):
            state.counts.stale += 1
            raise Fenced(f"{sender.key} was declared dead in epoch {state.number} or before")

    def greet_worker(self, sender: Sender, epoch: Epoch) -> None:
        state = self._state
        if sender.key not in self._first_epochs:
            state.counts.stale += 1
            raise Fenced(f"{sender.key} is no worker of epoch {epoch.number}")

    def replace_predecessors(self, sender: Sender, first: int) -> None:
        """An incarnation has given a mark: from clock ``first`` on only its own pushes count.

        Not before: a predecessor that died between two of its marks had pushed all of that clock everywhere,
        and this shard hears only now that the clock is finished.
        """
        if self._beginnings.get(sender.name, ("", 0))[0] != sender.incarnation:
            self._beginnings[sender.name] = sender.incarnation, first
            self._state.bsp_buffer.drop_replaced(sender, first)

    def enroll_workers(self, epoch: Epoch) -> None:
        """Follow a new epoch."""
        for worker in epoch.workers:
            if worker.key not in self._first_epochs:
                self._state.barrier.mark_returned(worker.name)
        keys = [worker.key for worker in epoch.workers]
        self._first_epochs = {key: self._first_epochs.get(key, epoch.number) for key in keys}

    def drop_replaced(self) -> None:
        """Pushes that came along with blocks may be from incarnations that were replaced meanwhile."""
        for name, (incarnation, first) in self._beginnings.items():
            self._state.bsp_buffer.drop_replaced(Sender(name, incarnation), first)

    def resolve_blocks(self, wanted: WantedBlocks | PulledParts) -> list[StoreSlice]:
        """Where these blocks are; the values of a slice are those of the whole store."""
        parts = []
        for name, ids in wanted:
            store = self._state.ownership.get_store(name)
            positions = rows = None
            if isinstance(ids, WantedRows):
                positions, rows = store.locate_rows(ids.rows)
            elif ids is not None:
                positions = store.locate_blocks(ids)
            parts.append(StoreSlice(store, positions, store.values, rows))
        return parts

    def require_available(self, parts: Sequence[StoreSlice]) -> None:
        for part in parts:
            waiting = part.store.count_unavailable(part.positions)
            if waiting:
                raise MustWait(f"{waiting} blocks of table {part.store.table.name} are loading or moving")

    def require_replayed(self, parts: Sequence[StoreSlice]) -> None:
        for part in parts:
            waiting = part.store.count_replaying(part.positions)
            if waiting:
                raise MustWait(f"{waiting} blocks of table {part.store.table.name} wait for what workers owe")

    def require_clock(self, clock: int) -> None:
        state = self._state
        if state.clock < clock:
            behind = [name for name in state.awaited_workers if state.barrier.finished_clocks(name) < clock]
            waiting = ", ".join(behind) or "marks in this epoch"
            name = state.member.name
            raise MustWait(f"{name} is at clock {state.clock}, not {clock}, and waits for {waiting}")
