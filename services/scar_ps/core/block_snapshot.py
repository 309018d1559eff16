"""Blocks as they are at one moment, copied piece by piece while pushes go on (copy-on-write).

Between two pieces other events have their turn. Whoever is about to change a block has it copied before, so
the whole copy is of the moment at which it was begun, and no block is torn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scar.blocks import Array, Layout, Positions
from scar_ps.core.block_data import BlockContents
from scar_ps.core.block_store import RUN_ELEMENTS, BlockStore, Mask, split_runs


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
    """Whole blocks, ``first`` to ``last`` (exclusive), or some elements of one large block.

    ``span``: these, counted from the start of the block; (0, 0): all.
    """

    first: int
    last: int
    span: tuple[int, int] = (0, 0)


def split_pieces(layout: Layout, elements: int = RUN_ELEMENTS) -> list[Piece]:
    """Pieces of about so many elements, in order; no piece has more unless its blocks are whole and small."""
    pieces = []
    for first, last in split_runs(layout, elements):
        size = layout.find_start(last) - layout.find_start(first)
        if last - first > 1 or size <= elements:
            pieces.append(Piece(first, last))
        else:
            edges = [*range(0, size, elements), size]
            pieces += [Piece(first, last, span) for span in pairwise(edges)]
    return pieces


class _CopiedArray(NamedTuple):
    """What is copied from where to where."""

    source: Array
    layout: Layout
    target: Array
    packed: Layout

    def copy_range(self, positions: Positions, first: int, last: int) -> None:
        low, high = self.packed.find_start(first), self.packed.find_start(last)
        self.layout.gather_into(self.source, positions[first:last], self.target[low:high])

    def copy_scattered(self, positions: Positions, at: Positions) -> None:
        self.packed.scatter(self.target, at, self.layout.gather(self.source, positions[at]))

    def copy_span(self, position: int, index: int, span: tuple[int, int]) -> None:
        low, high = self.layout.find_start(position), self.packed.find_start(index)
        self.target[high + span[0] : high + span[1]] = self.source[low + span[0] : low + span[1]]


class BlockSnapshot:
    """Of the blocks at ``positions`` (ascending) of a store, as they are when this is made.

    ``contents`` are there when :meth:`copy_piece` has said so. It must be released.
    """

    def __init__(self, store: BlockStore, positions: Positions, timer: StallTimer) -> None:
        self._store = store
        self._positions = positions
        self._timer = timer
        packed = store.layout.take(positions)
        self._arrays = [_CopiedArray(store.values, store.layout, _empty(packed, store.values), packed)]
        slots: dict[str, Array] = {}
        for name, slot in store.slots.items():
            whole = store.slot_layout(name)
            part = whole.take(positions)
            slots[name] = _empty(part, slot)
            self._arrays.append(_CopiedArray(slot, whole, slots[name], part))
        steps: NDArray[np.int64] = np.empty(len(positions), np.int64)
        one = Layout.even(len(positions), 1)
        self._arrays.append(_CopiedArray(store.steps, Layout.even(len(store), 1), steps, one))
        self.contents = BlockContents(self._arrays[0].target, slots, steps)
        self._waiting: Mask = np.ones(len(positions), np.bool_)
        self._index: NDArray[np.int32] = np.full(len(store), -1, np.int32)
        self._index[positions] = np.arange(len(positions), dtype=np.int32)
        self._pieces = deque(split_pieces(packed))
        store.before_change.append(self.preserve_blocks)

    def release(self) -> None:
        """Nothing is copied any more."""
        self._pieces.clear()
        if self.preserve_blocks in self._store.before_change:
            self._store.before_change.remove(self.preserve_blocks)

    def copy_piece(self) -> bool:
        """Copy the next piece. False: everything is there."""
        while self._pieces:
            piece = self._pieces.popleft()
            if self._waiting[piece.first : piece.last].any():
                with self._timer:
                    self._copy(piece)
                break
        if not self._pieces:
            self.release()
        return bool(self._pieces)

    def _copy(self, piece: Piece) -> None:
        if piece.span != (0, 0):
            self._copy_span(piece)
            return
        waiting = self._waiting[piece.first : piece.last]
        for array in self._arrays:
            if waiting.all():
                array.copy_range(self._positions, piece.first, piece.last)
            else:
                array.copy_scattered(self._positions, piece.first + np.flatnonzero(waiting))
        self._waiting[piece.first : piece.last] = False

    def _copy_span(self, piece: Piece) -> None:
        """A part of a block. Until its last one the block is as good as not copied."""
        position = int(self._positions[piece.first])
        size = int(self._store.layout.sizes[position])
        for array in self._arrays:
            width = int(array.layout.sizes[position])  # slots may have an element a row
            array.copy_span(
                position, piece.first, (piece.span[0] * width // size, piece.span[1] * width // size)
            )
        if piece.span[1] == size:
            self._waiting[piece.first] = False

    def preserve_blocks(self, positions: Positions) -> None:
        """These blocks of the store (ascending) are about to change."""
        at = self._index[positions]
        at = at[at >= 0]
        at = at[self._waiting[at]]
        if not len(at):
            return
        with self._timer:
            packed = self._arrays[0].packed.take(at.astype(np.int64))
            for start, stop in split_runs(packed, RUN_ELEMENTS):
                for array in self._arrays:
                    array.copy_scattered(self._positions, at[start:stop].astype(np.int64))
            self._waiting[at] = False


def _empty(layout: Layout, like: Array) -> Array:
    array: Array = np.empty(layout.elements, like.dtype)
    return array
