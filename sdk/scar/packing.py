"""A user's arrays to packed blocks and back. Pure.

Every check that a shard would make is made here first, so that a bad push fails in the call that made it, before any shard has
seen a part of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scar.blocks import Array, Ids, Layout, Positions, all_finite
from scar.errors import BlockOutOfRange, InvalidRequest, NonFinite, ShapeMismatch
from scar.reroute import Part, Piece
from scar.tables import Job, Table


def checked_ids(table: Table, ids: ArrayLike) -> Ids:
    """Block ids as given by a user: any order, repeats allowed. Raises :class:`BlockOutOfRange` or :class:`InvalidRequest`."""
    array = np.asarray(ids)
    if array.size == 0:
        return np.empty(0, dtype=np.uint32)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InvalidRequest(f"table {table.name}: ids must be one axis of integers, not {array.dtype} of shape {array.shape}")
    low, high = int(array.min()), int(array.max())
    if low < 0 or high >= table.blocks:
        raise BlockOutOfRange(f"block {low if low < 0 else high} is out of range, table {table.name} has {table.blocks}")
    return array.astype(np.uint32)


def packed_rows(table: Table, ids: Ids) -> int:
    """Rows of the first axis that these blocks have together."""
    return int((table.row_offsets[ids.astype(np.int64) + 1] - table.row_offsets[ids]).sum())


def flat(table: Table, values: ArrayLike, rows: int) -> Array:
    """``values`` of shape (rows, *row shape) as flat contiguous elements of the table's dtype; may share memory with them."""
    array = np.asarray(values)
    expected = (rows, *table.shape[1:])
    if array.shape != expected:
        raise ShapeMismatch(f"table {table.name}: pushed shape {array.shape}, expected {expected}")
    if not np.can_cast(array.dtype, table.dtype, "same_kind"):
        raise ShapeMismatch(f"table {table.name}: pushed dtype {array.dtype} does not fit {table.dtype}")
    out: Array = np.ascontiguousarray(array, dtype=table.dtype).reshape(-1)
    if table.dtype.kind == "f" and not table.allow_nonfinite and not all_finite(out):
        raise NonFinite(f"table {table.name}: the push contains NaN or infinity")
    return out


def combined(table: Table, ids: Ids, values: Array) -> Piece:
    """One entry per block, ascending; ``values`` is packed as ``ids``. Repeats are summed (rule ``assign``: the last wins)."""
    if len(ids) < 2 or bool((ids[1:] > ids[:-1]).all()):
        return Piece(ids, values)
    unique, inverse = np.unique(ids, return_inverse=True)
    target = table.layout.take(unique.astype(np.int64))
    places = target.indices(inverse.astype(np.int64))
    if table.rule.kind == "assign" or len(unique) == len(ids):
        out = np.empty(target.elements, dtype=values.dtype)
        out[places] = values
    elif target.width:
        order = np.argsort(inverse, kind="stable")
        starts = np.searchsorted(inverse[order], np.arange(len(unique)))
        sums = np.add.reduceat(values.reshape(-1, target.width)[order], starts, axis=0)
        out = sums.reshape(-1).astype(values.dtype, copy=False)
    else:
        out = np.zeros(target.elements, dtype=values.dtype)
        np.add.at(out, places, values)
    return Piece(unique.astype(np.uint32), out)


def gathered(job: Job, parts: Sequence[Part]) -> Part:
    """These parts, none of which was sent, as one: their sum (rule ``assign``: the last).

    Who has the sum has all of them, so it goes under the number of the last, and belongs to the first one's clock.
    """
    pieces: dict[str, Piece] = {}
    for table in {table: None for part in parts for table in part.pieces}:
        mine = [part.pieces[table] for part in parts if table in part.pieces]
        ids, values = np.concatenate([piece.ids for piece in mine]), np.concatenate([piece.values for piece in mine])
        pieces[table] = mine[0] if len(mine) == 1 else combined(job.table(table), ids, values)
    return Part(
        max(part.push_id for part in parts),
        min(part.clock for part in parts),
        pieces,
        owed=any(part.owed for part in parts),
        count=sum(part.count for part in parts),
    )


class Wanted:
    """Blocks of one table that a pull is collecting. ``ids``: ascending, or None for the whole table."""

    def __init__(self, table: Table, ids: Ids | None = None) -> None:
        self.table, self.ids = table, ids
        self.layout: Layout = table.layout if ids is None else table.layout.take(ids.astype(np.int64))
        self.flat: Array = np.empty(self.layout.elements, dtype=table.dtype)
        self._missing: NDArray[np.bool_] = np.ones(len(self.layout), dtype=bool)

    @property
    def complete(self) -> bool:
        return not self._missing.any()

    def missing(self) -> tuple[Positions, Ids]:
        """Positions in the result that have not arrived, and their block ids."""
        positions = np.flatnonzero(self._missing)
        return positions, positions.astype(np.uint32) if self.ids is None else self.ids[positions]

    def buffer(self, positions: Positions) -> Array:
        """Where the packed values of these blocks can be received: the result itself when they are all of it."""
        if self.layout.is_all(positions):
            return self.flat
        return np.empty(int(self.layout.sizes[positions].sum()), dtype=self.table.dtype)

    def fill(self, positions: Positions, packed: Array) -> None:
        if packed is not self.flat:
            self.layout.scatter(self.flat, positions, packed)
        self._missing[slice(None) if self.layout.is_all(positions) else positions] = False

    def restart(self) -> None:
        """Forget what has arrived: a rollback has made it worthless."""
        self._missing[:] = True


def result(wanted: Wanted, asked: Ids | None) -> Array:
    """The read-only array that a pull returns. ``asked``: the user's ids, in the user's order, with repeats."""
    table, values = wanted.table, wanted.flat
    values.setflags(write=False)
    if asked is None or wanted.ids is None:
        values = values.reshape(table.shape)
    else:
        if not np.array_equal(asked, wanted.ids):
            at = np.searchsorted(wanted.ids, asked)
            values = values[wanted.layout.indices(at)]
        values = values.reshape(packed_rows(table, asked), *table.shape[1:])
    values.setflags(write=False)
    return values
