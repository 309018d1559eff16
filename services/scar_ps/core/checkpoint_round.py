"""One checkpoint round: what was measured, what is copied, and what counts as saved when it is committed.

The saved values of a store say what a committed manifest holds, so distances stay honest: a copy takes their
place only when the coordinator reports the commit, piece by piece as it was made. What is *committed* and not
there yet goes before what is there (:func:`committed_values`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from scar.blocks import Array, BlockState, Ids, Positions, positions_of
from scar.errors import Busy, InvalidRequest
from scar_ps.core.block_data import CopiedBlocks
from scar_ps.core.block_snapshot import (
    BlockSnapshot,
    Piece,
    PieceCopy,
    StallTimer,
    renew_snapshot,
    split_pieces,
)
from scar_ps.core.block_store import BlockStore, StoreSlice
from scar_ps.core.distances import BlockDistances
from scar_ps.core.ownership import BlockOwnership
from scar_ps.core.relocation import Relocation, select_kept
from scar_ps.core.row_changes import FIRST_OBJECT, INITIAL
from scar_runtime.checkpoint.manifest import ObjectRef


@dataclass(eq=False, slots=True)
class Candidates:
    """Blocks of one table that may be saved: of the ``settled`` ones, so many, all, or those that may have
    changed since.

    ``distances``: None when nobody asked for them.
    """

    store: BlockStore
    positions: Positions
    settled: int
    distances: BlockDistances | None = None

    @property
    def ids(self) -> Ids:
        return self.store.ids[self.positions]


class ShardRoundStage(Enum):
    IDLE = "idle"
    MEASURED = "measured"
    COPYING = "copying"
    COPIED = "copied"
    UPLOADED = "uploaded"


class CheckpointRound:
    """The round that this shard takes part in, ``underway`` from its begin to its end.

    ``saved_clock``: of the last one that was committed; ``stored``: updates whose changes are all in the
    store, in a job whose rounds save all that changes. ``committed``: what the newest manifest holds of some
    blocks, and the saved values of their stores do not show yet.
    """

    def __init__(self) -> None:
        self.number = 0
        self.saved_clock = 0
        self.stored = 0
        self._updates = 0  # when the round began
        self.underway = False
        self.stage = ShardRoundStage.IDLE
        self.committed: list[StoreSlice] = []
        self._pieces: deque[Piece] = deque()  # of the first of those: what is left of it
        self._clock = 0
        self._author = ""
        self._object: ObjectRef | None = None
        self._baselines: dict[int, ObjectRef] = {}  # objects of this shard that have blocks as they were
        self._next_baseline = FIRST_OBJECT
        self._started: list[Candidates] = []  # by identity: what is being measured
        self._candidates: list[Candidates] = []
        self._copied: list[CopiedBlocks] = []  # by identity: the copy that is made and uploaded
        self._snapshots: deque[BlockSnapshot] = deque()  # that are not whole yet
        self._saving: list[StoreSlice] = []  # the copy, for the blocks that are still here

    def start_round(
        self,
        number: int,
        ownership: BlockOwnership,
        updates: int = 0,
        author: str = "",
        by_distance: bool = False,
    ) -> list[Candidates]:
        """Start a round; one that was never finished counts as failed.

        Returns what may be saved, without distances.

        ``updates``: that were applied so far. Blocks that move belong to the next round, of another shard.
        ``author``: incarnation of the coordinator; two of them may give a round the same number.
        ``by_distance``: what has not changed is not looked at, as its distance is 0.
        """
        self._drop_copy()
        while self.install_piece():
            pass
        self._updates = 0 if ownership.any_frozen else updates
        self.number = number
        self.stage = ShardRoundStage.IDLE
        self.underway = True
        self._candidates = []
        self._author = author
        self._object = None
        self._forget_baselines(ownership)
        self._started = [_find_candidates(store, by_distance) for store in ownership.tables.values()]
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
        if number == self.number and self.stage in (ShardRoundStage.COPYING, ShardRoundStage.COPIED):
            raise Busy(f"round {number} is being uploaded already")
        if number != self.number or self.stage is not ShardRoundStage.MEASURED:
            raise InvalidRequest(f"round {number} has no distances on this shard in this epoch")
        return self._candidates

    def begin_copy(
        self,
        number: int,
        clock: int,
        chosen: Sequence[BlockSnapshot],
        contents_of: Callable[[int], Mapping[str, int]],
        timer: StallTimer,
        baselines: frozenset[str] | None = None,
    ) -> list[CopiedBlocks]:
        """Copy these candidates as they are now; their contents are there when :meth:`next_piece` says
        so.

        ``chosen``: made for them, and not begun. ``contents_of``: the watermark of blocks of an origin.
        ``baselines``: keys of objects that are listed; None: nothing but whole blocks is to be saved.
        """
        self.measured_candidates(number)
        usable = self._usable_baselines(baselines)
        copied: list[CopiedBlocks] = []
        self.stage = ShardRoundStage.COPYING
        self._clock = clock
        self._candidates = []
        self._copied = copied
        for one in chosen:
            for snapshot in [one] if one.is_current() else renew_snapshot(one):
                snapshot.begin(timer)
                self._snapshots.append(snapshot)
                store = snapshot.store
                at = snapshot.positions
                state = BlockState(store.table.name, snapshot.ids, clock, contents_of(snapshot.origin))
                copied.append(CopiedBlocks(state, snapshot.contents, snapshot.begin_changes(usable)))
                whole = len(at) == len(store)
                store.unsaved[at] = False
                self._saving.append(StoreSlice(store, None if whole else at, snapshot.contents.values))
        return copied

    def next_piece(self, copied: Sequence[CopiedBlocks]) -> PieceCopy | None:
        """What is to be copied next, now that the one before is; None: all contents are there.

        Raises :class:`InvalidRequest` when the round is over or was started again.
        """
        if self.stage is not ShardRoundStage.COPYING or copied is not self._copied:
            raise InvalidRequest("the round was over before its blocks were copied")
        while self._snapshots:
            piece = self._snapshots[0].next_piece()
            if piece is not None:
                return piece
            self._snapshots.popleft()
        self.stage = ShardRoundStage.COPIED
        return None

    def record_upload(self, copied: Sequence[CopiedBlocks], saved: ObjectRef | None = None) -> None:
        """The object with this copy is durable; None: the copy is empty.

        Raises :class:`InvalidRequest` when the round is over or was started again.
        """
        if self.stage is not ShardRoundStage.COPIED or copied is not self._copied:
            raise InvalidRequest("the round was over before its object was durable")
        self.stage = ShardRoundStage.UPLOADED
        self._object = saved

    def record_failure(self, copied: Sequence[CopiedBlocks]) -> None:
        """The upload of this copy has failed: the round is missed."""
        if self.stage in (ShardRoundStage.COPYING, ShardRoundStage.COPIED) and copied is self._copied:
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
        own = "" if self._object is None else self._object.key
        kept = committed and self.stage is ShardRoundStage.UPLOADED and object_key == own
        if kept:
            self.saved_clock = self._clock
            self.stored = max(self.stored, self._updates)
            self._commit_copy()
        self._drop_copy()
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
        self._saving = _follow_blocks(self._saving, relocations)
        if self.stage in (ShardRoundStage.IDLE, ShardRoundStage.MEASURED, ShardRoundStage.COPYING):
            self._drop_copy()
            self.stage = ShardRoundStage.IDLE
            self.underway = False
        self.committed = _follow_blocks(self.committed, relocations)
        self._pieces.clear()

    def forget_committed(self) -> None:
        """What the newest manifest holds is not known any more."""
        self.committed = []
        self._pieces.clear()

    def install_piece(self) -> bool:
        """Make a little more of what is committed the saved values. False: that was all."""
        if not self.committed:
            return False
        part = self.committed[0]
        layout = part.layout
        width = part.store.table.row_elements
        if not self._pieces:
            rows = part.store.row_counts.take(part.store_positions)
            self._pieces.extend(split_pieces(rows, width))
        piece = self._pieces.popleft()
        values = np.asarray(part.values)
        at = part.store_positions[piece.first : piece.last]
        start = layout.find_start(piece.first)
        if piece.rows != (0, 0):
            first = part.store.find_start(part.store.layout, int(at[0]))
            low = piece.rows[0] * width
            high = piece.rows[1] * width
            part.store.saved[first + low : first + high] = values[start + low : start + high]
        else:
            packed = values[start : layout.find_start(piece.last)]
            part.store.scatter(part.store.saved, part.store.layout, at, packed)
        if not self._pieces:
            self.committed.pop(0)
        return bool(self.committed)

    def _commit_copy(self) -> None:
        if self._object is not None and self._end_saving(self._next_baseline):
            self._baselines[self._next_baseline] = self._object
            self._next_baseline += 1
        self.committed += self._saving
        self._saving = []

    def _end_saving(self, baseline: int) -> bool:
        """Blocks that were saved whole have this baseline now. False: there are none."""
        found = False
        for part in self._saving:
            if part.store.row_changes is not None:
                found |= part.store.row_changes.end_copy(part.store_positions, baseline)
        return found

    def _usable_baselines(self, listed: frozenset[str] | None) -> dict[int, ObjectRef | None]:
        if listed is None:
            return {}
        return {INITIAL: None} | {number: ref for number, ref in self._baselines.items() if ref.key in listed}

    def _forget_baselines(self, ownership: BlockOwnership) -> None:
        """Those that no block has any more."""
        used = {
            number
            for store in ownership.tables.values()
            if store.row_changes is not None
            for number in np.flatnonzero(np.bincount(store.row_changes.baselines)).tolist()
        }
        self._baselines = {number: ref for number, ref in self._baselines.items() if number in used}

    def _drop_copy(self) -> None:
        """Nothing is copied or uploaded any more; what was not committed is as unsaved as before."""
        for snapshot in self._snapshots:
            snapshot.release()
        self._snapshots.clear()
        for part in self._saving:
            part.store.unsaved[part.store_positions] = True
        self._saving = []
        self._copied = []


def committed_values(store: BlockStore, positions: Positions, committed: Sequence[StoreSlice]) -> Array:
    """What the newest manifest holds of these blocks, packed.

    ``committed``: what the store's saved values do not show yet, of a round that is over.
    """
    saved = store.gather(store.saved, store.layout, positions)
    layout = store.layout.take(positions)
    ids = store.ids[positions]
    for part in committed:
        if part.store is store:
            at = positions_of(ids, part.ids)
            held = np.flatnonzero(at >= 0)
            layout.scatter(saved, at[held], part.layout.gather(np.asarray(part.values), held))
    return saved


def _follow_blocks(parts: list[StoreSlice], relocations: Mapping[str, Relocation]) -> list[StoreSlice]:
    """Those of the blocks that are still here."""
    followed = (select_kept(part, relocations) for part in parts)
    return [part for part in followed if part is not None]


def _find_candidates(store: BlockStore, by_distance: bool) -> Candidates:
    settled = (store.loading == 0) & ~store.unsettled
    count = int(np.count_nonzero(settled))
    return Candidates(store, np.flatnonzero(settled & store.unsaved if by_distance else settled), count)
