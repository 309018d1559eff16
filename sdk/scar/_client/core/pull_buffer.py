"""What a pull collects, and the array that its user gets. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scar._client.core.pushes import count_rows
from scar.blocks import Array, Ids, Layout, Positions
from scar.tables import Table


@dataclass(frozen=True, eq=False, slots=True)
class PulledPart:
    """Settled blocks of a whole table that one shard sent in ``epoch``, with ``clock`` open.

    ``watermark``: see :class:`scar.blocks.BlockState`.
    """

    ids: Positions
    epoch: int
    clock: int
    watermark: Mapping[str, int]


class PullBuffer:
    """Blocks of one table that a pull is collecting. ``ids``: ascending, or None for the whole table.

    ``clock``: in which it was pulled; -1: not known. ``parts``: what the values contain, as far as shards
    have said. ``all_present``: no worker has left since, or about then.
    """

    def __init__(self, table: Table, ids: Ids | None = None) -> None:
        self.table = table
        self.ids = ids
        self.clock = -1
        self.parts: list[PulledPart] = []
        self.all_present = True
        self.layout: Layout = table.layout if ids is None else table.layout.take(ids.astype(np.int64))
        self.flat: Array = np.empty(self.layout.elements, dtype=table.dtype)
        self._missing: NDArray[np.bool_] = np.ones(len(self.layout), dtype=bool)
        self._replaced: NDArray[np.bool_] | None = None  # blocks that a recovery has put back since
        self._void: NDArray[np.bool_] | None = None  # of those, the ones that went back to before this pull

    @property
    def complete(self) -> bool:
        return not self._missing.any()

    def missing_blocks(self) -> tuple[Positions, Ids]:
        """Positions in the result that have not arrived, and their block ids."""
        positions = np.flatnonzero(self._missing)
        return positions, positions.astype(np.uint32) if self.ids is None else self.ids[positions]

    def receive_buffer(self, positions: Positions) -> Array:
        """Where to receive the packed values of these blocks: the result itself when they are all of it."""
        if self.layout.is_all(positions):
            return self.flat
        return np.empty(self.layout.count_elements(positions), dtype=self.table.dtype)

    def fill_blocks(self, positions: Positions, packed: Array) -> None:
        """These blocks have arrived."""
        if packed is not self.flat:
            self.layout.scatter(self.flat, positions, packed)
        self._missing[slice(None) if self.layout.is_all(positions) else positions] = False

    def find_positions(self, ids: Ids) -> Positions:
        """Where these blocks, which were asked for, are in the result."""
        return ids.astype(np.int64) if self.ids is None else np.searchsorted(self.ids, ids)

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
        """A recovery has taken these blocks back to a clock before this pull."""
        if self._void is None:
            self._void = np.zeros(len(self.layout), dtype=bool)
        self._void[self.find_positions(ids)] = True

    def is_void(self, ids: Ids) -> NDArray[np.bool_]:
        """Which of these blocks no longer are what they were once."""
        if self._void is None:
            return np.zeros(len(ids), dtype=bool)
        return self._void[self.find_positions(ids)]

    def holds_state(self, ids: Ids, clock: int) -> bool:
        """Whether these blocks are what they were when ``clock`` was open, and nobody who had pushed left."""
        known = self.ids is None and self.clock == clock and self.all_present
        return known and not self.is_void(ids).any()

    def discard_blocks(self) -> None:
        """Forget what has arrived: a rollback has made it worthless."""
        self._missing[:] = True
        self.parts = []


def unpack_result(buffer: PullBuffer, asked: Ids | None) -> Array:
    """The read-only array that a pull returns.

    ``asked``: the user's ids, in the user's order, with repeats; None: the whole table.
    """
    table = buffer.table
    values = buffer.flat
    values.setflags(write=False)
    if asked is None or buffer.ids is None:
        values = values.reshape(table.shape)
    else:
        if asked is not buffer.ids and not np.array_equal(asked, buffer.ids):
            at = np.searchsorted(buffer.ids, asked)
            values = values[buffer.layout.indices(at)]
        values = values.reshape(count_rows(table, asked), *table.shape[1:])
    values.setflags(write=False)
    return values
