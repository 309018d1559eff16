"""What a worker can give back when a shard dies: what it pulled last (protocol §15). Pure.

Arrays are kept by reference; nothing is copied before it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from scar._client.core.comparisons import RecoveredBlocks
from scar._client.core.pull_buffer import PullBuffer, PulledPart
from scar._client.core.pulled_slots import PulledSlots
from scar._client.core.rerouting import is_restored
from scar.block_parts import VALUES, parts_beside
from scar.blocks import Array, BlockState, Ids
from scar.placement import NOBODY, BlockGroup, BlockSource, Epoch
from scar.strategies import PULLS_HELD
from scar.tables import Job

NEVER = -2  # a clock so early that no pull is near it
COPIES = 3  # of a table: the newest may lack blocks that moved while it was pulled, and the one before others


@dataclass(frozen=True, eq=False, slots=True)
class OfferedBlocks:
    """Blocks of one state that this worker holds, and the pull in which they came."""

    state: BlockState
    pulled: PullBuffer


@dataclass(frozen=True, eq=False, slots=True)
class OwedCopy:
    """Blocks of a pull that an epoch has this worker send to their new owner (member key)."""

    epoch: int
    owner: str
    state: BlockState
    pulled: PullBuffer

    def gather_parts(self) -> dict[str, Array]:
        """Values and what was pulled beside them, packed; by names of :mod:`scar.block_parts`."""
        pulled = self.pulled
        at = pulled.find_positions(self.state.ids)
        parts = {VALUES: pulled.layout.gather(pulled.flat, at)}
        if pulled.slots is not None:
            parts |= {part: pulled.slots.gather(part, at) for part in pulled.slots.parts}
        return parts

    def as_restored(self) -> RecoveredBlocks:
        """What its new owner is given, for the report of the epoch; without values."""
        behind = not self.pulled.all_present
        none = np.empty(0, self.pulled.table.dtype)
        return RecoveredBlocks(self.epoch, self.state.table, self.state.ids, none, behind, sent=True)


class HeldCopies:
    """Of one worker (its member key). BSP: clocks say which state a copy is, else watermarks do."""

    def __init__(self, job: Job, worker: str) -> None:
        self._worker = worker
        self._by_clock = job.consistency == "bsp"
        # pulls of some blocks, too: a replica has the others
        self._takes_some = job.strategy.missing and self._by_clock
        self._copies: dict[str, list[PullBuffer]] = {}  # by table, newest first
        self._offered: list[OfferedBlocks] = []
        self._has_answered = False  # recovery knows what was held then, and nothing of what came since
        self._beside = {table.name: parts_beside(table) for table in job.tables}
        self._slot_workers = job.pull_slots
        self._pulls_slots = False  # this worker does
        self._restored: dict[str, NDArray[np.int64]] = {}  # table -> of each block the epoch that put it back
        self._members: frozenset[str] = frozenset()  # workers of the newest epoch, by key
        self._left_clock = NEVER  # in which this worker was when another one left

    def can_hold(self, pulled: PullBuffer) -> bool:
        """Whether it can be given back once it is there: whole exact blocks of a table without slots, or of
        any where workers pull slots. Of those only what came with its slots is offered; with any other pull
        the worker sees what a recovery has cost.
        """
        whole = pulled.ids is None or (self._takes_some and pulled.rows is None)
        return whole and not pulled.short and bool(self._slot_workers or not self._beside[pulled.table.name])

    def ask_slots(self, pulled: PullBuffer) -> None:
        """Have slots pulled with the values, if it is this worker that has to give them back."""
        if self._pulls_slots and self._beside[pulled.table.name] and self.can_hold(pulled):
            pulled.slots = PulledSlots(pulled.table)

    def keep_pull(self, pulled: PullBuffer, clock: int, told: int = 0) -> bool:
        """A pull that can be held has ended, and the worker is still in the clock in which it began it.

        BSP: only what shards sent with this very clock open counts, and was not put back meanwhile. Else a
        pull that began before one that is kept is none. Returns whether all of it is a source until the next
        one is; what recovery does not know of, because it came after the answer to its question, is none: an
        epoch may put back what was held before. ``told``: the lowest open clock of a shard.
        """
        restored = self._restored.get(pulled.table.name)
        if restored is not None:
            since = [part.ids[restored[part.ids] <= part.epoch] for part in pulled.parts]
            pulled.parts = [replace(part, ids=ids) for part, ids in zip(pulled.parts, since, strict=True)]
        if self._by_clock:
            pulled.parts = [part for part in pulled.parts if part.clock == clock]
            # who has left may have pushed for this clock already, and nobody can send that again
            pulled.all_present = clock > self._left_clock + 1
        elif any(copy.number > pulled.number for copy in self._copies.get(pulled.table.name, [])):
            return False
        wanted = pulled.table.blocks if pulled.ids is None else len(pulled.ids)
        complete = sum(len(part.ids) for part in pulled.parts) == wanted
        before = [copy for copy in self._copies.get(pulled.table.name, []) if copy is not pulled]
        known = complete and not self._has_answered
        whole = [copy for copy in before if copy.ids is None]
        if pulled.ids is None:
            whole = [pulled] if known else self._keep_older(pulled, whole)
        some = [copy for copy in before if copy.ids is not None and _clock_of(copy) > told - PULLS_HELD]
        kept = [*whole, *some] if pulled.ids is None else [pulled, *whole, *some]
        self._copies[pulled.table.name] = (
            sorted(kept, key=_clock_of, reverse=True) if self._by_clock else kept
        )
        return known

    def _keep_older(self, pulled: PullBuffer, older: Sequence[PullBuffer]) -> list[PullBuffer]:
        """The copy, and older ones that have blocks which no newer one has, or which recovery may ask for."""
        kept = [pulled]
        covered = pulled.mark_sources()
        for copy in older:
            sources = copy.mark_sources()
            offered = any(one.pulled is copy for one in self._offered)
            if offered or (len(kept) < COPIES and (sources & ~covered).any()):
                kept.append(copy)
                covered |= sources
        return kept

    def offer_blocks(self, wanted: Mapping[str, Ids]) -> list[BlockState]:
        """What is held of these blocks, each once, from the newest copy that has it.

        It is kept until the next epoch, whatever is pulled meanwhile.
        """
        self._has_answered = True
        self._offered = [found for table, ids in wanted.items() for found in self._find_blocks(table, ids)]
        return [offered.state for offered in self._offered]

    def _find_blocks(self, table: str, ids: Ids) -> Iterator[OfferedBlocks]:
        missing = ids
        for copy in self._copies.get(table, []):
            if copy.slots is None and self._beside[table]:
                continue
            for part in copy.parts:
                found = np.intersect1d(missing, part.ids, assume_unique=True).astype(np.uint32)
                found = found[~copy.is_void(found)]
                if len(found):
                    state = BlockState(table, found, part.clock, part.watermark, self._worker)
                    yield OfferedBlocks(state, copy)
                    missing = np.setdiff1d(missing, found, assume_unique=True)

    def follow_epoch(self, epoch: Epoch, clock: int) -> list[OwedCopy]:
        """What this worker, in this clock, has to send in this epoch. What it puts back cuts the history of
        copies.
        """
        members = frozenset(worker.key for worker in epoch.workers)
        if not self._members <= members:
            self._left_clock = clock
            for copies in self._copies.values():
                for copy in copies:
                    copy.all_present = False
        self._members = members
        first = [worker.key for worker in epoch.workers][: self._slot_workers]
        self._pulls_slots = self._worker in first
        owed = [copy for group in epoch.moved for copy in self._owed_copies(epoch, group)]
        self._offered = []
        self._has_answered = False
        for group in epoch.moved:
            if is_restored(group):
                if group.table not in self._restored:
                    self._restored[group.table] = np.zeros(len(epoch.owners[group.table]), np.int64)
                self._restored[group.table][group.ids] = epoch.number
                self._cut_history(group)
        return owed

    def _owed_copies(self, epoch: Epoch, group: BlockGroup) -> Iterator[OwedCopy]:
        if group.source is not BlockSource.WORKER or group.sender != self._worker:
            return
        for offered in self._offered:
            state = offered.state
            same = state.clock == group.clock if self._by_clock else state.watermark == group.watermark
            if state.table != group.table or not same:
                continue
            ids = np.intersect1d(group.ids, state.ids, assume_unique=True).astype(np.uint32)
            for owner, share in epoch.split(group.table, ids):
                if owner != NOBODY:
                    mine = BlockState(group.table, ids[share], group.clock)
                    yield OwedCopy(epoch.number, epoch.shards[owner].key, mine, offered.pulled)

    def _cut_history(self, group: BlockGroup) -> None:
        """The block is again as it was at the group's clock: what was pulled later may never be again."""
        for copy in self._copies.get(group.table, []):
            later = [part for part in copy.parts if self._is_later(part, group)]
            if later and self._by_clock:  # then all parts are of one clock
                copy.mark_void(group.ids)
            elif later:  # one shard may have been ahead of the one that had these blocks
                ids = np.concatenate([part.ids for part in later])
                copy.mark_void(np.intersect1d(group.ids, ids, assume_unique=True).astype(np.uint32))

    def _is_later(self, part: PulledPart, group: BlockGroup) -> bool:
        if self._by_clock:
            return part.clock > group.clock
        return any(push > group.watermark.get(key, 0) for key, push in part.watermark.items())


def _clock_of(copy: PullBuffer) -> int:
    """In which it was pulled; nothing of it may be of use."""
    return copy.parts[0].clock if copy.parts else NEVER
