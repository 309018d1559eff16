"""Values, saved values and slots of the blocks that a shard has of one table, wherever they lie in memory.

Callers know blocks by their positions, ascending as their ids do, and rows by their numbers when all blocks
are put one behind the other. A *layout* here is that of such an array: values, or a slot.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from scar.blocks import Array, Ids, Layout, Positions
from scar.row_copies import gather_rows_into
from scar.tables import Table
from scar_ps.core.block_memory import BlockMemory, Places, Tenancy

# about 1 MiB: temporaries stay in the cache, a lock is held for a quarter of a millisecond
RUN_ELEMENTS = 1 << 18
COPIED_ELEMENTS = 1 << 20  # of a copy by the thread that writes: enough for several processors
StoreRows = NDArray[np.integer[Any]]  # rows of a store, or uint64 images of keys
OnProgress = Callable[[], None]  # called during long work, about every millisecond


class ChangeObserver(Protocol):
    """Hears what is about to change, by ascending positions."""

    def preserve_blocks(self, positions: Positions) -> None: ...

    def preserve_rows(self, rows: Positions) -> None: ...


class BlockArrays:
    """Of the blocks ``ids`` (ascending) of ``table``. ``memory``: what its arrays are of.

    ``layout``, ``row_counts``: elements and rows of all blocks, packed. ``places``: where they are; None:
    back to back.
    """

    def __init__(self, table: Table, ids: Ids, memory: BlockMemory, at: Positions | None = None) -> None:
        """``at``: place of each block in ``memory``; None: at free ones."""
        self.table = table
        self.ids = ids
        self.layout = table.layout.take(ids.astype(np.int64))
        self.row_counts = table.row_counts.take(ids.astype(np.int64))
        self.memory = memory
        self.places = self._find_places(_take_places(memory, len(ids)) if at is None else at)
        self.tenancy = Tenancy(memory.released)
        self.values: Array = self._view(memory.values, self.layout)
        self.saved: Array = self._view(memory.saved, self.layout)
        self.slots: dict[str, Array] = {
            name: self._view(slot, self.slot_layout(name)) for name, slot in memory.slots.items()
        }

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def value_bytes(self) -> int:
        return self.layout.elements * self.table.dtype.itemsize

    @property
    def bytes(self) -> int:
        """Values and slots."""
        slots = sum(self.slot_layout(name).elements for name in self.slots)
        return self.value_bytes + slots * self.table.dtype.itemsize

    @property
    def row_layout(self) -> Layout:
        """All rows, in elements."""
        return Layout.even(self.row_counts.elements, self.table.row_elements)

    def slot_layout(self, slot: str) -> Layout:
        """All blocks of a slot, in its elements."""
        return self.table.slot_layout(slot, self.row_counts)

    def _find_places(self, at: Positions) -> Places | None:
        """None: blocks lie back to back from the first place on."""
        rows = self.memory.place_rows
        if not rows or np.array_equal(at, np.arange(len(at))):
            return None
        last = self.row_counts.elements - (len(at) - 1) * rows
        return Places(at, rows, 0 if last == rows else last)

    def _view(self, flat: Array, layout: Layout) -> Array:
        return flat[: layout.elements] if self.places is None else flat

    def _row_width(self, layout: Layout) -> int:
        """Elements of a row in an array with this layout."""
        return layout.elements // max(1, self.row_counts.elements)

    def gather(self, flat: Array, layout: Layout, positions: Positions) -> Array:
        """Copy of these (ascending) blocks in one of its arrays, packed."""
        if self.places is None:
            return layout.gather(flat, positions)
        packed: Array = np.empty(layout.count_elements(positions), flat.dtype)
        self.places.gather_into(flat, self._row_width(layout), positions, packed)
        return packed

    def gather_into(self, flat: Array, layout: Layout, positions: Positions, packed: Array) -> None:
        """The same, written to ``packed``."""
        if self.places is None:
            layout.gather_into(flat, positions, packed)
        else:
            self.places.gather_into(flat, self._row_width(layout), positions, packed)

    def scatter(self, flat: Array, layout: Layout, positions: Positions, packed: Array) -> None:
        """Write packed blocks to one of its arrays."""
        if self.places is None:
            layout.scatter(flat, positions, packed)
        else:
            packed = packed.astype(flat.dtype, copy=False)
            self.places.scatter(flat, self._row_width(layout), positions, packed)

    def find_start(self, layout: Layout, position: int) -> int:
        """Element at which a block begins in one of its arrays."""
        if self.places is None:
            return layout.find_start(position)
        return self.places.find_start(position, self._row_width(layout))

    def find_in_memory(self, rows: StoreRows) -> Positions:
        """Where these rows of the store are in its arrays, in rows."""
        at = rows.astype(np.int64, copy=False)
        return at if self.places is None else self.places.find_rows(at)

    def copy_rows(self, rows: StoreRows, room: Array | None = None) -> Array:
        """Values of these (ascending) rows of the store, packed; written to ``room`` where it is given."""
        at = self.find_in_memory(rows)
        width = self.table.row_elements
        packed: Array = np.empty(len(at) * width, self.values.dtype) if room is None else room
        if self.places is None:
            self.row_layout.gather_into(self.values, at, packed)
        else:
            gather_rows_into(self.values, width, at, packed)
        return packed


def _take_places(memory: BlockMemory, count: int) -> Positions:
    found = memory.take_places(count)
    assert found is not None, "memory is made with room for the store that it is made for"
    return found


def copy_arrays(old: BlockArrays, new: BlockArrays, source: Positions, progress: OnProgress) -> None:
    """To a new store. ``source``: where each of its blocks is in the old one; -1: nowhere."""
    if not len(old):
        return
    held = source if old.places is None else np.where(source >= 0, old.places.at[source], -1)
    _copy_values(old, new, source, held, progress)
    target = np.flatnonzero(source >= 0)
    kept = source[target]
    for start, stop in split_runs(new.layout.take(target), RUN_ELEMENTS) if old.slots else ():
        for name, slot in old.slots.items():
            packed = old.gather(slot, old.slot_layout(name), kept[start:stop])
            new.scatter(new.slots[name], new.slot_layout(name), target[start:stop], packed)
        progress()


def _copy_values(
    old: BlockArrays, new: BlockArrays, source: Positions, held: Positions, progress: OnProgress
) -> None:
    """``held``: the places of ``source`` in the arrays of the old one."""
    arrays = (new.values, old.values), (new.saved, old.saved)
    blocks, width = new.layout.body
    count, known = old.layout.body
    if old.places is not None:
        known = old.places.rows * old.table.row_elements
    if width != known:
        blocks = count = 0
    whole = count * width if old.places is None else None  # of memory: all of it
    for start, stop in split_runs(Layout.even(blocks, width), COPIED_ELEMENTS):  # in one pass
        come_from = held[start:stop]
        for written, read in arrays:
            gather_rows_into(
                read[:whole], width, come_from, written[start * width : stop * width], partly=True
            )
        progress()
    target = blocks + np.flatnonzero(source[blocks:] >= 0)
    for start, stop in split_runs(new.layout.take(target), COPIED_ELEMENTS):
        for written, read in arrays:
            kept = old.gather(read, old.layout, source[target[start:stop]])
            new.scatter(written, new.layout, target[start:stop], kept)
        progress()


def split_runs(layout: Layout, elements: int) -> list[tuple[int, int]]:
    """Ranges of whole blocks with about ``elements`` elements each; a larger block is a run of its own."""
    if layout.elements <= elements:
        return [(0, len(layout))] if len(layout) else []
    if layout.width:
        edges = np.arange(0, len(layout), max(1, elements // layout.width))
    else:
        marks = np.arange(0, layout.elements, elements)
        edges = np.unique(np.searchsorted(layout.starts, marks, side="right") - 1)
    return list(pairwise([*edges.tolist(), len(layout)]))
