"""What a pull collects, and the array that its user gets. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scar import bfloat16
from scar._client.core.pulled_slots import PulledSlots
from scar._client.core.pushes import count_rows
from scar.blocks import Array, Ids, Layout, Positions, RowNames, drop_repeats, positions_of
from scar.keyed_rows import split_stored
from scar.tables import Table


@dataclass(frozen=True, eq=False, slots=True)
class PulledPart:
    """Settled whole blocks that one shard sent in ``epoch``, with ``clock`` open.

    ``watermark``: see :class:`scar.blocks.BlockState`.
    """

    ids: Positions
    epoch: int
    clock: int
    watermark: Mapping[str, int]


class PullBuffer:
    """Blocks of one table that a pull is collecting. ``ids``: ascending, or None for the whole table.
    ``rows``: these rows (ascending) instead; then ``ids`` are their blocks, and a position is that of a row.

    ``lists_keys``: it is of blocks of a table with keys, with what they keep of their keys.

    ``clock``: in which it was pulled; -1: not known. ``parts``: what the values contain, as far as shards
    have said. ``number``: of the pull, where pulls are numbered. ``all_present``: no worker has left since,
    or about then. ``short``: values come rounded to bfloat16, so they are no exact copy. ``slots``: what is
    pulled beside them, of a whole table.
    """

    def __init__(
        self, table: Table, ids: Ids | None = None, rows: RowNames | None = None, short: bool = False
    ) -> None:
        self.lists_keys = table.keys is not None and rows is None
        self.table = table.stored if self.lists_keys else table
        self.short = short
        self.slots: PulledSlots | None = None
        self.ids = ids if rows is None else drop_repeats(table.find_blocks(rows))
        self.rows = rows
        self.clock = -1
        self.number = 0
        self.parts: list[PulledPart] = []
        self.all_present = True
        self.layout = self._packed_layout()
        self.flat: Array = np.empty(self.layout.elements, dtype=table.dtype)
        self._missing: NDArray[np.bool_] = np.ones(len(self.layout), dtype=bool)
        self._replaced: NDArray[np.bool_] | None = None  # blocks that a recovery has put back since
        self._void: NDArray[np.bool_] | None = None  # of those, the ones that went back to before this pull

    def _packed_layout(self) -> Layout:
        if self.rows is not None:
            return Layout.even(len(self.rows), self.table.row_elements)
        return self.table.layout if self.ids is None else self.table.layout.take(self.ids.astype(np.int64))

    @property
    def complete(self) -> bool:
        return not self._missing.any()

    def missing_blocks(self) -> tuple[Positions, Ids]:
        """Positions in the result that have not arrived, and their block ids (of rows: with repeats)."""
        every = bool(self._missing.all())  # as at first
        positions = np.arange(len(self._missing)) if every else np.flatnonzero(self._missing)
        if self.rows is not None:
            return positions, self.table.find_blocks(self.rows if every else self.rows[positions])
        if self.ids is None:
            return positions, positions.astype(np.uint32)
        return positions, self.ids if every else self.ids[positions]

    def receive_buffer(self, positions: Positions) -> Array:
        """Where to receive the packed values of these blocks: the result itself when they are all of it."""
        if self.layout.is_all(positions) and not self.short:
            return self.flat
        dtype = bfloat16.DTYPE if self.short else self.table.dtype
        return np.empty(self.layout.count_elements(positions), dtype=dtype)

    def fill_blocks(self, positions: Positions, packed: Array) -> None:
        """These blocks have arrived; ``packed`` is this buffer's from now on."""
        values = bfloat16.lengthen_values(packed) if packed.dtype != self.flat.dtype else packed
        if self.layout.is_all(positions):
            self.flat = values
            self._missing[:] = False
            return
        self.layout.scatter(self.flat, positions, values)
        self._missing[positions] = False

    def find_positions(self, ids: Ids) -> Positions:
        """Where these blocks, which were asked for, are in the result."""
        if self.rows is not None:
            return np.flatnonzero(positions_of(ids, self.table.find_blocks(self.rows)) >= 0)
        return ids.astype(np.int64) if self.ids is None else np.searchsorted(self.ids, ids)

    def fill_from(self, known: PullBuffer) -> None:
        """Take what is missing from an earlier pull of the same kind, if that has all of it."""
        positions, ids = self.missing_blocks()
        if (self.rows is None) != (known.rows is None) or (known.short and not self.short):
            return
        wanted = ids if self.rows is None else self.rows[positions]
        held = known.ids if known.rows is None else known.rows
        at = wanted.astype(np.int64) if held is None else positions_of(held, wanted)
        if (at >= 0).all():
            self.fill_blocks(positions, known.layout.gather(known.flat, at))

    def mark_replaced(self, ids: Ids) -> None:
        """A recovery has put these blocks back: what was pulled is not what they hold."""
        if self._replaced is None:
            self._replaced = np.zeros(len(self.layout), dtype=bool)
        self._replaced[self.find_positions(ids)] = True

    def holds_newest(self, ids: Ids, clock: int) -> bool:
        """Whether these blocks were pulled in this clock and have not been put back since."""
        replaced = self._replaced is not None and bool(self._replaced[self.find_positions(ids)].any())
        return self.clock >= clock and not replaced

    def mark_void(self, ids: Ids) -> None:
        """A recovery has taken these blocks, as far as they are here, back to a clock before this pull."""
        if self._void is None:
            self._void = np.zeros(len(self.layout), dtype=bool)
        here = ids if self.ids is None else np.intersect1d(ids, self.ids, assume_unique=True)
        self._void[self.find_positions(here)] = True

    def is_void(self, ids: Ids) -> NDArray[np.bool_]:
        """Which of these blocks no longer are what they were once."""
        if self._void is None:
            return np.zeros(len(ids), dtype=bool)
        return self._void[self.find_positions(ids)]

    def mark_sources(self) -> NDArray[np.bool_]:
        """Of a whole table: which blocks came with what they contain, and no recovery has voided since."""
        sources = np.zeros(len(self.layout), dtype=bool)
        for part in self.parts:
            sources[part.ids] = True
        return sources if self._void is None else sources & ~self._void

    def holds_state(self, ids: Ids, clock: int) -> bool:
        """Whether these blocks are what they were when ``clock`` was open, and nobody who had pushed left."""
        known = self.rows is None and self.clock == clock and self.all_present
        return known and not self.is_void(ids).any()

    def discard_blocks(self) -> None:
        """Forget what has arrived: a rollback has made it worthless."""
        self._missing[:] = True
        self.parts = []
        if self.slots is not None:
            self.slots.discard_blocks()


def unpack_result(buffer: PullBuffer, asked: RowNames | None) -> Any:
    """The read-only array that a pull returns, or :class:`KeyedValues` of a whole table with keys.

    ``asked``: the user's ids or rows, in the user's order, with repeats; None: the whole table.
    """
    table = buffer.table
    values = buffer.flat
    values.setflags(write=False)
    if buffer.lists_keys:
        return split_stored(values.reshape(-1, table.row_elements))
    if asked is None or buffer.ids is None:
        values = values.reshape(table.shape)
    else:
        held = buffer.ids if buffer.rows is None else buffer.rows
        if asked is not held and not np.array_equal(asked, held):
            at = np.searchsorted(held, asked)
            values = buffer.layout.pick(values, at)
        rows = len(asked) if buffer.rows is not None else count_rows(table, asked)
        values = values.reshape(rows, *table.shape[1:])
    values.setflags(write=False)
    return values
