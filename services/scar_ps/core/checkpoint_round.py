"""One checkpoint round: what was measured, what was copied, and what comes back when it fails.

The saved values of a store say what a committed manifest holds. Between copy and commit the copied blocks are
*pending*: their former saved values are kept, and put back unless the coordinator reports the commit. So
distances stay honest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from scar.blocks import Array, BlockState, Ids, Positions, positions_of
from scar.errors import Busy, InvalidRequest
from scar_ps.core.block_data import CopiedBlocks
from scar_ps.core.block_store import BlockStore, StoreSlice
from scar_ps.core.distances import BlockDistances
from scar_ps.core.ownership import BlockOwnership, Relocation, select_kept

ChosenBlocks = Sequence[tuple[BlockStore, Positions]]


@dataclass(eq=False, slots=True)
class Candidates:
    """Blocks of one table that may be saved: all settled ones.

    ``distances``: None when nobody asked for them.
    """

    store: BlockStore
    positions: Positions
    distances: BlockDistances | None = None

    @property
    def ids(self) -> Ids:
        return self.store.ids[self.positions]


class ShardRoundStage(Enum):
    IDLE = "idle"
    MEASURED = "measured"
    COPIED = "copied"
    UPLOADED = "uploaded"


class CheckpointRound:
    """The round that this shard takes part in, ``underway`` from its begin to its end.

    ``saved_clock``: of the last one that was committed; ``stored``: updates whose changes are all in the
    store, in a job whose rounds save all that changes.
    """

    def __init__(self) -> None:
        self.number = 0
        self.saved_clock = 0
        self.stored = 0
        self._updates = 0  # when the round began
        self.underway = False
        self.stage = ShardRoundStage.IDLE
        self.pending: list[StoreSlice] = []  # former saved values
        self._clock = 0
        self._author = ""
        self._object_key = ""
        self._started: list[Candidates] = []  # by identity: what is being measured
        self._candidates: list[Candidates] = []
        self._copied: list[CopiedBlocks] = []  # by identity: the copy that is being uploaded

    def start_round(
        self, number: int, ownership: BlockOwnership, updates: int = 0, author: str = ""
    ) -> list[Candidates]:
        """Start a round; one that was never finished counts as failed.

        Returns what may be saved, without distances.

        ``updates``: that were applied so far. Blocks that move belong to the next round, of another shard.
        ``author``: incarnation of the coordinator; two of them may give a round the same number.
        """
        self._restore_saved()
        self._updates = 0 if ownership.any_frozen else updates
        self.number = number
        self.stage = ShardRoundStage.IDLE
        self.underway = True
        self._candidates = []
        self._author = author
        self._object_key = ""
        self._started = [Candidates(store, _settled_positions(store)) for store in ownership.tables.values()]
        return self._started

    def record_distances(self, candidates: list[Candidates]) -> None:
        """The distances of what this round began with are known. Those of a former one say nothing."""
        if candidates is self._started and self.stage in (ShardRoundStage.IDLE, ShardRoundStage.MEASURED):
            self.stage = ShardRoundStage.MEASURED
            self._candidates = candidates
            if not any(one.distances is None or one.distances.any() for one in candidates):
                self.stored = max(self.stored, self._updates)  # all is as the store has it

    def measured_candidates(self, number: int) -> list[Candidates]:
        """What was measured, to choose from. Raises :class:`Busy`, :class:`InvalidRequest`."""
        if number == self.number and self.stage is ShardRoundStage.COPIED:
            raise Busy(f"round {number} is being uploaded already")
        if number != self.number or self.stage is not ShardRoundStage.MEASURED:
            raise InvalidRequest(f"round {number} has no distances on this shard in this epoch")
        return self._candidates

    def copy_blocks(
        self, number: int, clock: int, chosen: ChosenBlocks, ownership: BlockOwnership, own: Mapping[str, int]
    ) -> list[CopiedBlocks]:
        """Copy these candidates and take them for saved. ``own``: the shard's watermark."""
        self.measured_candidates(number)
        copied: list[CopiedBlocks] = []
        self.stage = ShardRoundStage.COPIED
        self._clock = clock
        self._candidates = []
        self._copied = copied
        for store, positions in chosen:
            there = positions[~store.frozen[positions]] if store.blocked else positions
            for origin in np.flatnonzero(np.bincount(store.origin[there])).tolist():
                at = there[store.origin[there] == origin]
                contents = store.copy_blocks(at)
                self.pending.append(_replace_saved(store, at, contents.values))
                state = BlockState(
                    store.table.name, store.ids[at], clock, ownership.watermark_of(origin, own)
                )
                copied.append(CopiedBlocks(state, contents))
        return copied

    def record_upload(self, copied: Sequence[CopiedBlocks], object_key: str = "") -> None:
        """The object with this copy is durable.

        Raises :class:`InvalidRequest` when the round is over or was started again.
        """
        if self.stage is not ShardRoundStage.COPIED or copied is not self._copied:
            raise InvalidRequest("the round was over before its object was durable")
        self.stage = ShardRoundStage.UPLOADED
        self._object_key = object_key

    def record_failure(self, copied: Sequence[CopiedBlocks]) -> None:
        """The upload of this copy has failed: the round is missed."""
        if self.stage is ShardRoundStage.COPIED and copied is self._copied:
            self.abandon_round()

    def abandon_round(self) -> None:
        """End the round under way, whoever began it: it is missed."""
        self.finish_round(self.number, False, self._author)

    def finish_round(self, number: int, committed: bool, author: str = "", object_key: str = "") -> bool:
        """The round is over.

        True when it was committed with this shard's object, so that its cache entries stay.

        ``object_key``: what the manifest names. A leader that was paused may speak of a round of its own that
        had the same number.
        """
        if (number, author) != (self.number, self._author):
            return False
        kept = committed and self.stage is ShardRoundStage.UPLOADED and object_key == self._object_key
        if kept:
            self.saved_clock = self._clock
            self.pending = []
            self.stored = max(self.stored, self._updates)
        self._restore_saved()
        self.stage = ShardRoundStage.IDLE
        self.underway = False
        self._started = []
        self._candidates = []
        return kept

    def adopt_epoch(self, relocations: Mapping[str, Relocation]) -> None:
        """Blocks changed hands.

        A round whose blocks are not copied yet is missed; of a copied one, the blocks that left are
        forgotten.
        """
        self._candidates = []
        if self.stage in (ShardRoundStage.IDLE, ShardRoundStage.MEASURED):
            self.stage = ShardRoundStage.IDLE
            self.underway = False
        followed = [select_kept(part, relocations) for part in self.pending]
        self.pending = [part for part in followed if part is not None]

    def _restore_saved(self) -> None:
        for part in self.pending:
            if part.positions is None:
                part.store.saved = np.asarray(part.values)
            else:
                part.store.layout.scatter(part.store.saved, part.positions, np.asarray(part.values))
        self.pending = []


def committed_values(store: BlockStore, positions: Positions, pending: Sequence[StoreSlice]) -> Array:
    """What the newest manifest holds of these blocks, packed.

    ``pending``: former saved values of a round that is not over.
    """
    saved = store.layout.gather(store.saved, positions)
    layout = store.layout.take(positions)
    ids = store.ids[positions]
    for part in pending:
        if part.store is store:
            at = positions_of(ids, part.ids)
            held = np.flatnonzero(at >= 0)
            layout.scatter(
                saved, at[held], store.packed_layout(part.positions).gather(np.asarray(part.values), held)
            )
    return saved


def _settled_positions(store: BlockStore) -> Positions:
    return np.flatnonzero((store.loading == 0) & ~store.unsettled)


def _replace_saved(store: BlockStore, positions: Positions, values: Array) -> StoreSlice:
    """Make copied values the saved ones; returns the former.

    All blocks at once change places with the copy: no second copy.
    """
    if len(positions) == len(store):
        former, store.saved = store.saved, values
        return StoreSlice(store, None, former)
    former = store.layout.gather(store.saved, positions)
    store.layout.scatter(store.saved, positions, values)
    return StoreSlice(store, positions, former)
