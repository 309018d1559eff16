"""One checkpoint round at a time: what was measured, what was copied, and what comes back when the round fails.

The saved values of a store say what a committed manifest holds. Between copy and commit the copied blocks are *pending*: their
former saved values are kept, and put back unless the coordinator reports the commit. So distances stay honest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from scar.blocks import Array, Ids, Positions, positions_of
from scar.errors import Busy, InvalidRequest
from scar_ps.blockstore import BlockStore, Contents, Part
from scar_ps.distances import Distances
from scar_ps.holdings import Holdings, Relocation, follow

Chosen = Sequence[tuple[BlockStore, Positions]]


@dataclass(eq=False, slots=True)
class Candidates:
    """Blocks of one table that may be saved: all settled ones. ``distances``: None when nobody asked for them."""

    store: BlockStore
    positions: Positions
    distances: Distances | None = None

    @property
    def ids(self) -> Ids:
        return self.store.ids[self.positions]


@dataclass(frozen=True, eq=False, slots=True)
class Copied:
    """Blocks of one table with one watermark, copied at one moment."""

    table: str
    ids: Ids
    watermark: Mapping[str, int]
    contents: Contents


class Stage(Enum):
    IDLE = "idle"
    MEASURED = "measured"
    COPIED = "copied"
    UPLOADED = "uploaded"


class Rounds:
    """The round that this shard takes part in, ``underway`` from its begin to its end. ``saved_clock``: of the last one that
    was committed; ``stored``: updates whose changes are all in the store, in a job whose rounds save all that changes."""

    def __init__(self) -> None:
        self.number, self.saved_clock, self.stored = 0, 0, 0
        self._updates = 0  # when the round began
        self.underway = False
        self.stage = Stage.IDLE
        self.pending: list[Part] = []  # former saved values
        self._clock = 0
        self._candidates: list[Candidates] = []
        self._copied: list[Copied] = []  # by identity: the copy that is being uploaded

    def begin(self, number: int, holdings: Holdings, updates: int = 0) -> list[Candidates]:
        """Start a round; one that was never finished counts as failed. Returns what may be saved, without distances.

        ``updates``: that were applied so far. Blocks that move belong to the next round, of another shard.
        """
        self._put_back()
        self._updates = 0 if holdings.frozen else updates
        self.number, self.stage, self._candidates, self.underway = number, Stage.IDLE, [], True
        return [Candidates(store, _settled(store)) for store in holdings.tables.values()]

    def measured(self, number: int, candidates: list[Candidates]) -> None:
        """The distances are known."""
        if number == self.number and self.stage in (Stage.IDLE, Stage.MEASURED):
            self.stage, self._candidates = Stage.MEASURED, candidates
            if not any(one.distances is None or one.distances.any() for one in candidates):
                self.stored = max(self.stored, self._updates)  # all is as the store has it

    def candidates(self, number: int) -> list[Candidates]:
        """What was measured, to choose from. Raises :class:`Busy`, :class:`InvalidRequest`."""
        if number == self.number and self.stage is Stage.COPIED:
            raise Busy(f"round {number} is being uploaded already")
        if number != self.number or self.stage is not Stage.MEASURED:
            raise InvalidRequest(f"round {number} has no distances on this shard in this epoch")
        return self._candidates

    def copy(self, number: int, clock: int, chosen: Chosen, holdings: Holdings, own: Mapping[str, int]) -> list[Copied]:
        """Copy these candidates and take them for saved. ``own``: the shard's watermark."""
        self.candidates(number)
        copied: list[Copied] = []
        self.stage, self._clock, self._candidates, self._copied = Stage.COPIED, clock, [], copied
        for store, positions in chosen:
            there = positions[~store.frozen[positions]] if store.blocked else positions
            for origin in np.flatnonzero(np.bincount(store.origin[there])).tolist():
                at = there[store.origin[there] == origin]
                contents = store.copy(at)
                self.pending.append(_take_for_saved(store, at, contents.values))
                copied.append(Copied(store.table.name, store.ids[at], holdings.watermark(origin, own), contents))
        return copied

    def uploaded(self, copied: Sequence[Copied]) -> None:
        """The object with this copy is durable. Raises :class:`InvalidRequest` when the round is over or was started anew."""
        if self.stage is not Stage.COPIED or copied is not self._copied:
            raise InvalidRequest("the round was over before its object was durable")
        self.stage = Stage.UPLOADED

    def failed(self, copied: Sequence[Copied]) -> None:
        """The upload of this copy has failed: the round is missed."""
        if self.stage is Stage.COPIED and copied is self._copied:
            self.finish(self.number, False)

    def finish(self, number: int, committed: bool) -> bool:
        """The round is over. True when it was committed with this shard's object, so that its cache entries stay."""
        if number != self.number:
            return False
        kept = committed and self.stage is Stage.UPLOADED
        if kept:
            self.saved_clock, self.pending = self._clock, []
            self.stored = max(self.stored, self._updates)
        self._put_back()
        self.stage, self._candidates, self.underway = Stage.IDLE, [], False
        return kept

    def follow(self, relocations: Mapping[str, Relocation]) -> None:
        """Blocks changed hands: a round whose blocks are not copied yet is missed; of a copied one, what left is forgotten."""
        self._candidates = []
        if self.stage in (Stage.IDLE, Stage.MEASURED):
            self.stage, self.underway = Stage.IDLE, False
        followed = [follow(part, relocations) for part in self.pending]
        self.pending = [part for part in followed if part is not None]

    def _put_back(self) -> None:
        for part in self.pending:
            if part.positions is None:
                part.store.saved = np.asarray(part.values)
            else:
                part.store.layout.scatter(part.store.saved, part.positions, np.asarray(part.values))
        self.pending = []


def committed_values(store: BlockStore, positions: Positions, pending: Sequence[Part]) -> Array:
    """What the newest manifest holds of these blocks, packed. ``pending``: former saved values of a round that is not over."""
    saved = store.layout.gather(store.saved, positions)
    layout, ids = store.layout.take(positions), store.ids[positions]
    for part in pending:
        if part.store is store:
            at = positions_of(ids, part.ids)
            held = np.flatnonzero(at >= 0)
            layout.scatter(saved, at[held], store.packed(part.positions).gather(np.asarray(part.values), held))
    return saved


def _settled(store: BlockStore) -> Positions:
    return np.flatnonzero((store.loading == 0) & ~store.unsettled)


def _take_for_saved(store: BlockStore, positions: Positions, values: Array) -> Part:
    """Make copied values the saved ones; returns the former. All blocks at once change places with the copy: no second copy."""
    if len(positions) == len(store):
        former, store.saved = store.saved, values
        return Part(store, None, former)
    former = store.layout.gather(store.saved, positions)
    store.layout.scatter(store.saved, positions, values)
    return Part(store, positions, former)
