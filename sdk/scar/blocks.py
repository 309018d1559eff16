"""Blocks in flat memory: where each block of a table lies, and how to copy many of them at once.

A *layout* describes ``n`` blocks stored one after the other in a flat array. Blocks of one size (the common
case) are copied as rows of a matrix; ragged blocks by an index array. Nothing here loops over blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from scar.row_copies import copy_elements, gather_rows, gather_rows_into, scatter_rows

Ids = NDArray[np.uint32]
Positions = NDArray[np.int64]
RowNames = NDArray[np.unsignedinteger[Any]]  # rows of a table, or uint64 images of keys (scar.keyed_rows)
Array = NDArray[np.generic]
Number = TypeVar("Number", bound=np.integer[Any])

DENSE = 16  # ids up to so many times as many as are looked up: a table of them is faster than a search


@dataclass(frozen=True, eq=False)
class BlockState:
    """Which state some blocks of one table are in: all of them were copied from one shard at one moment.

    ``ids`` ascend. ``clock``: the open clock at that moment. ``watermark``: worker key -> last push id that
    the values contain. ``owner``: member key of the shard that wrote the values; empty for x(0), or where it
    does not matter. Values, and where they are, belong to whatever holds the state.
    """

    table: str
    ids: Ids
    clock: int = 0
    watermark: Mapping[str, int] = field(default_factory=dict)
    owner: str = ""


class Layout:
    """Blocks of given sizes (elements), back to back. ``starts[i]:starts[i + 1]`` is block ``i``."""

    def __init__(self, sizes: NDArray[np.int64]) -> None:
        sizes = np.ascontiguousarray(sizes, dtype=np.int64)
        starts: Positions = np.zeros(len(sizes) + 1, dtype=np.int64)
        sizes.cumsum(out=starts[1:])
        first = int(sizes[0]) if len(sizes) else 0
        evenly = bool((sizes[:-1] == first).all())
        uniform = evenly and bool((sizes[-1:] == first).all())
        self._blocks = len(sizes)
        self.elements = int(starts[-1])
        self.width = first if uniform else 0  # elements per block; 0: ragged
        self._body = first if evenly and not uniform else 0  # only the last block has another size
        self.sizes = sizes
        self.starts = starts

    def __len__(self) -> int:
        return self._blocks

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """int64[n], in elements."""
        return np.full(self._blocks, self.width, dtype=np.int64)

    @cached_property
    def starts(self) -> Positions:
        """int64[n + 1]: where each block begins, and the end of the last."""
        return np.arange(0, self.elements + 1, max(1, self.width), dtype=np.int64)[: self._blocks + 1]

    @property
    def body(self) -> tuple[int, int]:
        """(blocks, elements of each): all of them, or all but a last one of another size; (0, 0): ragged."""
        if self.width:
            return self._blocks, self.width
        return (self._blocks - 1, self._body) if self._body else (0, 0)

    def find_start(self, block: int) -> int:
        """Where this block begins; of ``n``: where the last one ends."""
        return block * self.width if self.width else int(self.starts[block])

    def find_blocks(self, elements: NDArray[Any]) -> Positions:
        """Which block each of these elements lies in."""
        if self.width:
            return elements.astype(np.int64, copy=False) // self.width
        found: Positions = np.searchsorted(self.starts, elements, side="right") - 1
        return found

    def take(self, positions: Positions) -> Layout:
        """The layout of these blocks when they are packed one after the other."""
        return Layout.even(len(positions), self.width) if self.width else Layout(self.sizes[positions])

    @classmethod
    def even(cls, blocks: int, width: int) -> Layout:
        """The layout of so many blocks of one size (at least 1), without memory for each."""
        layout = cls.__new__(cls)
        layout._blocks = blocks
        layout.elements = blocks * width
        layout.width = width if blocks else 0
        layout._body = 0
        return layout

    def count_elements(self, positions: Ids | Positions) -> int:
        """Elements that these blocks have together."""
        return len(positions) * self.width if self.width else int(self.sizes[positions].sum())

    def indices(self, positions: Positions) -> Positions:
        """Flat element index of every element of these blocks, in order; 8 bytes an element."""
        if self.width:
            return (positions[:, None] * self.width + np.arange(self.width)).reshape(-1)
        sizes = self.sizes[positions]
        ends = np.cumsum(sizes)
        total = int(ends[-1]) if len(ends) else 0
        shift: Positions = np.repeat(self.starts[positions] - (ends - sizes), sizes)
        return np.arange(total, dtype=np.int64) + shift

    def is_all(self, positions: Positions) -> bool:
        """True when ``positions`` (strictly ascending) are all blocks: then packed and flat are the same."""
        return len(positions) == self._blocks

    def gather(self, flat: Array, positions: Positions) -> Array:
        """Copy of these blocks, packed."""
        if self.is_all(positions):
            return flat.copy()
        if self.width:
            return gather_rows(flat, self.width, positions)
        if self._body and len(positions):
            whole = positions[positions < self._blocks - 1]
            rows = gather_rows(flat[: self.starts[-2]], self._body, whole)
            return rows if len(whole) == len(positions) else np.concatenate((rows, flat[self.starts[-2] :]))
        return flat[self.indices(positions)]

    def pick(self, flat: Array, positions: Positions) -> Array:
        """The same of positions in any order, with repeats."""
        return gather_rows(flat, self.width, positions) if self.width else flat[self.indices(positions)]

    def gather_into(self, flat: Array, positions: Positions, packed: Array, look: bool = False) -> bool:
        """The same, written to ``packed``. Positions ascend; neighbours are copied as one. False: one of the
        elements is not finite, where that is looked at.
        """
        count = len(positions)
        if count and int(positions[-1]) - int(positions[0]) == count - 1:
            first = int(positions[0])
            run = flat[self.find_start(first) : self.find_start(first + count)]
            return copy_elements(packed, run, look)
        if self.width:
            return gather_rows_into(flat, self.width, positions, packed, look=look)
        return copy_elements(packed, self.gather(flat, positions), look)

    def scatter(self, flat: Array, positions: Positions, packed: Array) -> None:
        """Write packed blocks to their places."""
        packed = packed.astype(flat.dtype, copy=False)
        if self.is_all(positions):
            copy_elements(flat, packed)
        elif self.width:
            scatter_rows(flat, self.width, positions, packed)
        elif self._body and len(positions):
            whole = positions[positions < self._blocks - 1]
            cut = len(whole) * self._body
            scatter_rows(flat[: self.starts[-2]], self._body, whole, packed[:cut])
            if len(whole) < len(positions):
                flat[self.starts[-2] :] = packed[cut:]
        else:
            flat[self.indices(positions)] = packed


def is_ascending(ids: NDArray[np.integer[Any]]) -> bool:
    """Each id is above the one before: none is repeated."""
    return len(ids) < 2 or bool((ids[1:] > ids[:-1]).all())


def drop_repeats(ids: NDArray[Number]) -> NDArray[Number]:
    """Each of these (ascending) once."""
    return ids if len(ids) < 2 else ids[np.append(True, ids[1:] != ids[:-1])]


def unite_ascending(several: Sequence[NDArray[np.integer[Any]]]) -> Any:
    """All of these ascending ids, each once, ascending. Runs that are sorted are merged: many times faster
    than ``numpy.unique``, which hashes them.
    """
    united = np.concatenate(several)
    united.sort(kind="stable")
    return drop_repeats(united)


def positions_of(held: RowNames, wanted: RowNames) -> Positions:
    """Index in ``held`` (ascending) of every id in ``wanted``; -1 where it is not held."""
    if len(held) == 0:
        return np.full(len(wanted), -1, dtype=np.int64)
    if np.array_equal(held, wanted):
        return np.arange(len(wanted))
    if int(held[-1]) < DENSE * len(wanted):
        where = np.full(int(held[-1]) + 2, -1, dtype=np.int64)  # the last entry: of what is above all held
        where[held] = np.arange(len(held))
        return where[np.minimum(wanted, len(where) - 1)]
    at = np.searchsorted(held, wanted)
    at[at == len(held)] = 0
    return np.where(held[at] == wanted, at, -1).astype(np.int64)
