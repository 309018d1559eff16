"""Blocks as they are at one moment, copied piece by piece while pushes go on (copy-on-write).

A piece is copied beside other events, so it may have what was pushed meanwhile, and half of it. Whoever is
about to change rows keeps them as they were, and they are put over the piece once it is copied: the whole
copy is of the moment at which it was begun.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scar.blocks import Array, Layout, Positions
from scar.row_copies import gather_rows, scatter_rows
from scar_ps.core.block_arrays import COPIED_ELEMENTS, RUN_ELEMENTS, split_runs
from scar_ps.core.block_data import BlockContents
from scar_ps.core.block_store import Allocate, BlockStore, Mask
from scar_ps.core.row_changes import CopiedChanges
from scar_runtime.checkpoint.manifest import ObjectRef


class StallTimer:
    """How long copying has held up everything else: in ``total``, and ``longest`` at one stretch, in seconds.

    ``clock``: seconds of any clock that does not jump; without one nothing is known.
    """

    def __init__(self, clock: Callable[[], float] = float) -> None:
        self._clock = clock
        self._began = 0.0
        self.total = 0.0
        self.longest = 0.0

    def __enter__(self) -> None:
        self._began = self._clock()

    def __exit__(self, *_: object) -> None:
        seconds = self._clock() - self._began
        self.total += seconds
        self.longest = max(self.longest, seconds)


class Piece(NamedTuple):
    """Whole blocks, ``first`` to ``last`` (exclusive), or some rows of one large block.

    ``rows``: these, counted from the start of the block; (0, 0): all.
    """

    first: int
    last: int
    rows: tuple[int, int] = (0, 0)


def split_pieces(row_counts: Layout, width: int, elements: int = COPIED_ELEMENTS) -> list[Piece]:
    """Pieces of about so many elements, in order; one has more only if a row of ``width`` elements has.

    ``row_counts``: rows of the blocks.
    """
    most = max(1, elements // width)
    pieces = []
    for first, last in split_runs(row_counts, most):
        rows = row_counts.find_start(last) - row_counts.find_start(first)
        if last - first > 1 or rows <= most:
            pieces.append(Piece(first, last))
        else:
            pieces += [Piece(first, last, span) for span in pairwise([*range(0, rows, most), rows])]
    return pieces


class _CopiedArray(NamedTuple):
    """What is copied from where to where, with ``width`` elements a row."""

    store: BlockStore
    source: Array
    layout: Layout
    target: Array
    packed: Layout
    width: int

    def copy_blocks(self, positions: Positions, first: int, last: int) -> None:
        low = self.packed.find_start(first)
        high = self.packed.find_start(last)
        self.store.gather_into(self.source, self.layout, positions[first:last], self.target[low:high])

    def copy_scattered(self, positions: Positions, at: Positions) -> None:
        self.packed.scatter(self.target, at, self.store.gather(self.source, self.layout, positions[at]))

    def take_rows(self, rows: Positions) -> Array:
        return gather_rows(self.source, self.width, self.store.find_in_memory(rows))

    def copy_rows(self, rows: Positions, packed: Positions) -> None:
        scatter_rows(self.target, self.width, packed, self.take_rows(rows))


class PieceCopy:
    """A piece that may be copied while blocks change; who has made the snapshot makes up for that."""

    def __init__(self, arrays: Sequence[_CopiedArray], positions: Positions) -> None:
        self._arrays = arrays
        self._positions = positions
        self.run = (0, 0)  # blocks, first and last (exclusive)
        self.blocks: Positions = positions[:0]  # others, as indices of ``positions``
        self.rows: Positions = positions[:0]  # of the store
        self.packed: Positions = positions[:0]  # and of the copy

    def copy(self) -> None:
        """Without Python's lock for most of its time."""
        for array in self._arrays:
            if self.run[0] < self.run[1]:
                array.copy_blocks(self._positions, *self.run)
            if len(self.blocks):
                array.copy_scattered(self._positions, self.blocks)
            if len(self.rows):
                array.copy_rows(self.rows, self.packed)


class _KeptRows(NamedTuple):
    """Rows of a piece that is being copied as they were: where in the copy they go, and each array's."""

    packed: Positions
    arrays: list[Array]


class BlockSnapshot:
    """Of the blocks at ``positions`` (ascending) of a store, as they are when it is begun.

    What needs no look at values is done when this is made, beside training: a store keeps its blocks.
    ``contents`` are there when :meth:`next_piece` has said so. It must be released. ``origin``: of all of
    the blocks, when this is made.
    """

    def __init__(self, store: BlockStore, positions: Positions, allocate: Allocate = np.empty) -> None:
        """``allocate``: makes the arrays of the copy."""
        self.store = store
        self.positions = positions
        self.ids = store.ids[positions]
        self.origin = int(store.origin[positions[0]]) if len(positions) else 0
        self._allocate = allocate
        self._timer = StallTimer()
        self._row_counts = store.row_counts.take(positions)
        self._arrays: list[_CopiedArray] = []
        values = self._add_array(store.values, store.layout)
        slots = {name: self._add_array(slot, store.slot_layout(name)) for name, slot in store.slots.items()}
        self.contents = BlockContents(values, slots)
        self._marks: Array = np.empty(0, np.uint8)
        self._changed_counts = np.empty(0, np.int64)
        if store.row_changes is not None:
            self._marks = self._add_array(store.row_changes.marks, store.row_counts)
            self._changed_counts = store.row_changes.count_changed(positions)
        self._waiting: Mask = np.ones(len(positions), np.bool_)  # blocks
        self._copied: Mask = np.zeros(self._row_counts.elements, np.bool_)  # rows of waiting blocks
        self._begun: Mask = np.zeros(len(positions), np.bool_)  # blocks of which rows are copied
        self._index: NDArray[np.int32] = np.full(len(store), -1, np.int32)
        self._index[positions] = np.arange(len(positions), dtype=np.int32)
        self._pieces = deque(split_pieces(self._row_counts, store.table.row_elements))
        self._piece = Piece(0, 0)  # that is being copied
        self._span = (0, 0)  # its rows in the copy
        self._kept: list[_KeptRows] = []

    def is_current(self) -> bool:
        """Whether these blocks may be copied now as blocks of one origin: no epoch or move came between."""
        store = self.store
        frozen = store.blocked and bool(store.frozen[self.positions].any())
        return not frozen and bool((store.origin[self.positions] == self.origin).all())

    def begin(self, timer: StallTimer) -> None:
        """It is of this moment. ``timer``: of all that holds up others from now on."""
        self._timer = timer
        self.contents.steps = self.store.steps[self.positions]
        self.store.before_change.append(self)

    def begin_changes(self, baselines: Mapping[int, ObjectRef | None]) -> CopiedChanges | None:
        """Which rows are to be saved, as it is begun; None: all. ``baselines``: that may be used."""
        changes = self.store.row_changes
        if changes is None:
            return None
        marks = self._marks.view(np.uint8)
        return changes.begin_copy(self.positions, self._changed_counts, marks, baselines)

    def _add_array(self, source: Array, layout: Layout) -> Array:
        packed = layout.take(self.positions)
        target: Array = self._allocate(packed.elements, source.dtype)
        width = layout.elements // max(1, self.store.row_counts.elements)
        self._arrays.append(_CopiedArray(self.store, source, layout, target, packed, width))
        return target

    def release(self) -> None:
        """Nothing is copied any more."""
        self._pieces.clear()
        if self in self.store.before_change:
            self.store.before_change.remove(self)

    def next_piece(self) -> PieceCopy | None:
        """What is to be copied next, now that the one before is; None: everything is there."""
        with self._timer:
            self._end_piece()
            while self._pieces:
                piece = self._pieces.popleft()
                if self._waiting[piece.first : piece.last].any():
                    return self._begin_piece(piece)
            self.release()
            return None

    def _begin_piece(self, piece: Piece) -> PieceCopy:
        copy = PieceCopy(self._arrays, self.positions)
        first, last = map(self._row_counts.find_start, (piece.first, piece.last))
        waiting = self._waiting[piece.first : piece.last]
        begun = self._begun[piece.first : piece.last]
        if piece.rows != (0, 0):
            last = first + piece.rows[1]
            first += piece.rows[0]
            start = self.store.row_counts.find_start(int(self.positions[piece.first]))
            rows = start + np.arange(*piece.rows)
            copy.rows, copy.packed = self._find_missing(rows, np.arange(first, last))
        elif waiting.all() and not begun.any():
            copy.run = piece.first, piece.last
        else:
            copy.blocks = piece.first + np.flatnonzero(waiting & ~begun)
            parts = piece.first + np.flatnonzero(waiting & begun)
            rows = self.store.row_counts.indices(self.positions[parts])
            copy.rows, copy.packed = self._find_missing(rows, self._row_counts.indices(parts))
        self._piece = piece
        self._span = (first, last)
        return copy

    def _find_missing(self, rows: Positions, packed: Positions) -> tuple[Positions, Positions]:
        """Those of these rows that nobody has copied or kept."""
        missing = ~self._copied[packed]
        return rows[missing], packed[missing]

    def _end_piece(self) -> None:
        for kept in self._kept:
            for array, rows in zip(self._arrays, kept.arrays, strict=True):
                scatter_rows(array.target, array.width, kept.packed, rows)
        self._kept = []
        piece = self._piece
        first, last = self._span
        if piece.rows == (0, 0) or piece.rows[1] == int(self._row_counts.sizes[piece.first]):
            self._waiting[piece.first : piece.last] = False
        else:  # the rest of the block is to come
            self._copied[first:last] = True
        self._piece = Piece(0, 0)
        self._span = (0, 0)

    def preserve_blocks(self, positions: Positions) -> None:
        """These blocks of the store (ascending) are about to change."""
        at = self._index[positions].astype(np.int64)
        at = at[at >= 0]
        at = at[self._waiting[at]]
        if not len(at):
            return
        with self._timer:
            inside = (at >= self._piece.first) & (at < self._piece.last)
            self._keep_rows_of(at[inside])
            at = at[~inside]
            for start, stop in split_runs(self._arrays[0].packed.take(at), RUN_ELEMENTS):
                some = at[start:stop]
                for array in self._arrays:
                    array.copy_scattered(self.positions, some[~self._begun[some]])
                self._keep_rows_of(some[self._begun[some]])
            self._waiting[at] = False

    def _keep_rows_of(self, at: Positions) -> None:
        rows = self.store.row_counts.indices(self.positions[at])
        self._keep_rows(rows, self._row_counts.indices(at))

    def preserve_rows(self, rows: Positions) -> None:
        """These rows of the store (ascending) are about to change: the others of their blocks can wait."""
        with self._timer:
            blocks = self.store.row_counts.find_blocks(rows)
            at = self._index[blocks].astype(np.int64)
            wanted = np.flatnonzero(at >= 0)
            wanted = wanted[self._waiting[at[wanted]]]
            if not len(wanted):
                return
            at = at[wanted]
            shift = self._row_counts.starts[at] - self.store.row_counts.starts[blocks[wanted]]
            self._begun[at] = True
            self._keep_rows(rows[wanted], rows[wanted] + shift)

    def _keep_rows(self, rows: Positions, packed: Positions) -> None:
        """Copy those that nobody has copied; of a piece that is being copied, to be put over it."""
        rows, packed = self._find_missing(rows, packed)
        self._copied[packed] = True
        inside = (packed >= self._span[0]) & (packed < self._span[1])
        if inside.any():
            arrays = [array.take_rows(rows[inside]) for array in self._arrays]
            self._kept.append(_KeptRows(packed[inside], arrays))
            rows = rows[~inside]
            packed = packed[~inside]
        for array in self._arrays:
            array.copy_rows(rows, packed)


def make_snapshots(
    store: BlockStore, positions: Positions, allocate: Allocate = np.empty
) -> list[BlockSnapshot]:
    """For the blocks at these positions, one for those of each origin; none is begun."""
    origins = store.origin[positions]
    if len(positions) and (origins == origins[0]).all():
        return [BlockSnapshot(store, positions, allocate)]
    found = np.flatnonzero(np.bincount(origins)).tolist()
    return [BlockSnapshot(store, positions[origins == origin], allocate) for origin in found]


def renew_snapshot(snapshot: BlockSnapshot) -> list[BlockSnapshot]:
    """The same for what may be copied of its blocks now."""
    frozen = snapshot.store.frozen[snapshot.positions]
    return make_snapshots(snapshot.store, snapshot.positions[~frozen])
