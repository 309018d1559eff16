"""The arrays of one table of a shard, in which a block keeps its place for as long as the shard has it.

What an epoch brings gets places that are free, and what is kept is not copied: memory is touched for what is
new alone. Where a block has left, others come once nobody reads a store that had it (:class:`Tenancy`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from scar.blocks import Array, Ids, Positions
from scar.row_copies import gather_rows_into, scatter_rows
from scar.tables import Table

# elements, dtype: an array of zeros whose memory is taken as it is written to
Reserve = Callable[[int, "np.dtype[np.generic]"], Array]
RESERVED = 2  # places for each block of the table: the old one of what is put back goes on to be read
LEAST_USED = 0.5  # of the places up to the last one; with fewer, memory of its own is worth a copy


@dataclass(frozen=True, eq=False, slots=True)
class Places:
    """Where the blocks of a store are: ``at[i]`` is the place of block ``i``, of ``rows`` rows.

    ``last_rows``: of the last block, if it has fewer; else 0. ``width`` is of a row in an array, in elements.
    """

    at: Positions
    rows: int
    last_rows: int

    def find_start(self, position: int, width: int) -> int:
        """Element at which this block begins."""
        return int(self.at[position]) * self.rows * width

    def find_rows(self, rows: Positions) -> Positions:
        """Where these rows of the store are."""
        blocks = rows // self.rows
        return rows + (self.at[blocks] - blocks) * self.rows

    def find_cut(self, positions: Positions) -> int:
        """How many of these (ascending) blocks come before a last one with fewer rows."""
        short = self.last_rows and len(positions) and int(positions[-1]) == len(self.at) - 1
        return len(positions) - bool(short)

    def gather_into(self, flat: Array, width: int, positions: Positions, packed: Array) -> None:
        """Copy these (ascending) blocks to ``packed``."""
        cut = self.find_cut(positions)
        size = self.rows * width
        gather_rows_into(flat, size, self.at[positions[:cut]], packed[: cut * size])
        if cut < len(positions):
            packed[cut * size :] = self._last_block(flat, width)

    def scatter(self, flat: Array, width: int, positions: Positions, packed: Array) -> None:
        """Write packed blocks to their places."""
        cut = self.find_cut(positions)
        size = self.rows * width
        scatter_rows(flat, size, self.at[positions[:cut]], packed[: cut * size])
        if cut < len(positions):
            self._last_block(flat, width)[...] = packed[cut * size :]

    def _last_block(self, flat: Array, width: int) -> Array:
        first = self.find_start(-1, width)
        return flat[first : first + self.last_rows * width]


class BlockMemory:
    """Values, saved values and slots of a table: of the blocks ``ids``, back to back. ``lasting``: others may
    come later, where all blocks of the table are of one size, but for a shorter last one.

    ``marks``: one for each row, where rows may be saved alone (:mod:`scar_ps.core.row_changes`).
    ``place_rows``: rows of a place; 0: no others can come. ``end``: places from here on were never given.
    """

    def __init__(self, table: Table, ids: Ids, reserve: Reserve = np.zeros, lasting: bool = False) -> None:
        self.place_rows = _count_place_rows(table) if lasting else 0
        self.capacity = RESERVED * table.blocks if self.place_rows else len(ids)
        self._ids = ids
        self._rows = self.capacity * self.place_rows or table.row_counts.count_elements(ids)
        self.values = reserve(self._rows * table.row_elements, table.dtype)
        self.saved = reserve(self._rows * table.row_elements, table.dtype)
        self.slots = {name: reserve(self._rows * table.slot_width(name), table.dtype) for name in table.slots}
        self.marks = reserve(self._rows, np.dtype(np.uint8)) if _tracks_rows(table) else None
        self.end = 0
        self._free: Positions = np.empty(0, np.int64)  # ascending
        self.released: deque[Positions] = deque()  # by whatever thread dropped the last store that had them

    def fits(self, ids: Ids) -> bool:
        """Whether a store for these blocks may be made in it."""
        return bool(self.place_rows) or np.array_equal(self._ids, ids)

    def take_places(self, count: int) -> Positions | None:
        """Free ones, ascending; None: there are too few."""
        while self.released:
            self._free = np.sort(np.concatenate((self._free, self.released.popleft())))
        if self.end + count - len(self._free) > self.capacity:
            return None
        reused = self._free[:count]
        self._free = self._free[count:]
        first = self.end
        self.end += count - len(reused)
        return np.concatenate((reused, np.arange(first, self.end)))

    def _count_new(self, count: int) -> int:
        """Of so many places, those that were never given."""
        return max(0, count - len(self._free) - sum(map(len, list(self.released))))

    def suits(self, kept: int, gained: int) -> bool:
        """Whether a store that keeps so many blocks of this one, and gains others, should stay in it."""
        if not self.place_rows or self.end + self._count_new(gained) > self.capacity:
            return False
        return kept + gained >= LEAST_USED * self.end

    def untouched(self, count: int) -> list[Array]:
        """Where so many more blocks will be, as far as nothing was written there yet."""
        arrays = [self.values, self.saved, *self.slots.values()]
        if not self.place_rows:
            return arrays if not self.end else []
        last = min(self.capacity, self.end + self._count_new(count))
        sizes = [len(array) // self.capacity for array in arrays]  # of a place
        return [array[self.end * size : last * size] for array, size in zip(arrays, sizes, strict=True)]


def _tracks_rows(table: Table) -> bool:
    """Whether rows may be pushed alone, of blocks that have several. Sightings of keys are of no row."""
    if table.keys is not None and table.keys.admit_after > 1:
        return False
    return not table.has_row_blocks and not table.rule.counts_steps


def _count_place_rows(table: Table) -> int:
    """0: its blocks do not fit into places of one size."""
    counts = table.row_counts
    if table.keys is not None:
        return 0
    if counts.width:
        return counts.width
    most = counts.body[1]
    # steps are counted by whole blocks, and a shorter one is taken by rows
    return most if int(counts.sizes[-1]) < most and not table.rule.counts_steps else 0


class Tenancy:
    """That of a store, which has places in a memory: those that its successor has no more are free once
    nobody has this store, or one before it. So each tenancy holds that of its successor.
    """

    def __init__(self, released: deque[Positions]) -> None:
        self._released = released
        self._gone: Positions | None = None
        self._next: Tenancy | None = None

    def pass_on(self, gone: Positions, successor: Tenancy) -> None:
        """``gone``: places of what the successor has no more."""
        self._gone = gone
        self._next = successor

    def __del__(self) -> None:
        if self._gone is not None and len(self._gone):
            self._released.append(self._gone)
