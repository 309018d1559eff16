"""A push: the user's arrays, and what each shard gets of them. Pure.

Every check that a shard would make is made here first, so that a bad push fails in the call that made it,
before any shard has seen a part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scar.blocks import (
    Array,
    Ids,
    Layout,
    Positions,
    RowNames,
    drop_repeats,
    is_ascending,
    positions_of,
)
from scar.errors import BlockOutOfRange, InvalidRequest, NonFinite, ShapeMismatch
from scar.keyed_rows import check_keys
from scar.tables import MAX_ROWS, Job, Table

NOWHERE = ""  # key of pushes to blocks that have no owner at the moment


@dataclass(frozen=True, slots=True)
class PackedTable:
    """What a user pushed to one table: flat values of these blocks (ascending ids; None: the whole table).

    ``rows``: they are of these rows alone (ascending), which lie in the blocks. ``short``: they are
    bfloat16's, and travel as such; else who copies them looks for NaN and infinity.
    """

    ids: Ids | None
    values: Array
    rows: RowNames | None = None
    short: bool = False


@dataclass(frozen=True, slots=True)
class TablePush:
    """Blocks of one table (ascending ids) and what was pushed to them, packed flat.

    ``rows``: the values are of these rows alone (ascending), at least one in each of the blocks. ``short``:
    they are bfloat16's, and travel as such. A sum of several is not, and travels as it is.
    """

    ids: Ids
    values: Array
    rows: RowNames | None = None
    short: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class ShardPush:
    """What one shard gets of one ``push()``.

    ``seq``: its number in the stream to the shard; 0: never sent. ``applied_clock``: the clock that the shard
    applies it with: its own, or a later one when it came late. ``owed``: with its own, once all workers have
    settled; before that later one closes. ``resent``: sent again after an epoch change; the shard's blocks
    are not settled before it arrived. ``merged``: pushes that it is the sum of; ``push_id`` is that of the
    last. ``pulls``: number of the worker's newest pull when it was acknowledged.
    """

    push_id: int
    clock: int
    tables: Mapping[str, TablePush]
    seq: int = 0
    acked: bool = False
    applied_clock: int = 0
    owed: bool = False
    resent: bool = False
    merged: int = 1
    pulls: int = 0

    @property
    def needed_clock(self) -> int:
        """The clock without whose end the shard does not apply it."""
        return self.clock if self.owed else max(self.clock, self.applied_clock)

    @property
    def bytes(self) -> int:
        return sum(table.values.nbytes for table in self.tables.values())


# --- a user's arrays
# ------------------------------------------------------------------------------------------------------------


def pack_table(table: Table, values: ArrayLike, ids: Ids | None, rows: RowNames | None = None) -> PackedTable:
    """``values`` of shape (rows of ``ids``, *row shape), flat; ``ids`` None: the whole table.

    ``rows``: they are of these rows instead. Raises :class:`ShapeMismatch` and :class:`InvalidRequest`.
    """
    if table.keys is not None and rows is None:
        raise InvalidRequest(f"table {table.name} has keys: a push names them", "Name them by rows=")
    if rows is not None:
        packed = pack_rows(table, flatten_values(table, values, len(rows)), rows)
        return PackedTable(packed.ids, packed.values, packed.rows)
    if ids is None:
        return PackedTable(None, flatten_values(table, values, table.shape[0]))
    combined = combine_repeats(table, ids, flatten_values(table, values, count_rows(table, ids)))
    return PackedTable(combined.ids, combined.values)


def pack_rows(table: Table, values: Array, rows: RowNames) -> TablePush:
    """One entry per row, ascending; ``values`` is packed as ``rows``. Repeats as :func:`combine_repeats`."""
    if table.rule.counts_steps:
        raise InvalidRequest(
            f"table {table.name}: rule {table.rule.kind} counts the steps of a block, and rows={len(rows)} of"
            " them would take steps of their own",
            "Cut the table by scar.rows(1), or push whole blocks by ids=",
        )
    width = table.row_elements
    rows, values = _combine_entries(table, rows, values, lambda keys: Layout.even(len(keys), width))
    return TablePush(drop_repeats(table.find_blocks(rows)), values, rows)


def check_ids(table: Table, ids: ArrayLike) -> Ids:
    """Block ids as given by a user: any order, repeats allowed.

    Raises :class:`BlockOutOfRange` or :class:`InvalidRequest`.
    """
    array = _check_integers(table, "ids", ids)
    wrong = _find_outside(array, table.blocks)
    if wrong is not None:
        rows = "" if table.has_row_blocks else f" of its {table.shape[0]} rows, and ids are blocks"
        advice = "" if table.has_row_blocks else "Address rows by rows="
        raise BlockOutOfRange(
            f"block {wrong} is out of range, table {table.name} has {table.blocks}{rows}", advice
        )
    return array.astype(np.uint32)


def check_rows(table: Table, rows: ArrayLike) -> RowNames:
    """Rows of the first axis (images of keys) as given by a user: any order, repeats allowed.

    Raises as :func:`check_ids`.
    """
    if table.keys is not None:
        return check_keys(table.name, rows)
    array = _check_integers(table, "rows", rows)
    wrong = _find_outside(array, min(table.shape[0], MAX_ROWS))
    if wrong is not None:
        raise BlockOutOfRange(
            f"row {wrong} is out of range, table {table.name} has {table.shape[0]}"
            + f", of which the first {MAX_ROWS} have numbers in calls" * (table.shape[0] > MAX_ROWS)
        )
    return array.astype(np.uint32)


def _check_integers(table: Table, what: str, numbers: ArrayLike) -> NDArray[np.integer[Any]]:
    array = np.asarray(numbers)
    if array.size == 0:
        return np.empty(0, dtype=np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InvalidRequest(
            f"table {table.name}: {what} must be one axis of integers, not {array.dtype} of shape"
            f" {array.shape}"
        )
    return array


def _find_outside(array: NDArray[np.integer[Any]], end: int) -> int | None:
    """One of these that is not in ``range(end)``."""
    if not len(array):
        return None
    low = int(array.min())
    high = int(array.max())
    return low if low < 0 else high if high >= end else None


def count_rows(table: Table, ids: RowNames) -> int:
    """Rows of the first axis that these blocks have together."""
    return table.row_counts.count_elements(ids.astype(np.int64))


def flatten_values(table: Table, values: ArrayLike, rows: int) -> Array:
    """``values`` of shape (rows, *row shape) as flat contiguous elements of the table's dtype.

    The result may share memory with them. Raises :class:`ShapeMismatch`.
    """
    array = np.asarray(values)
    expected = (rows, *table.shape[1:])
    if array.shape != expected:
        raise ShapeMismatch(f"table {table.name}: pushed shape {array.shape}, expected {expected}")
    if not np.can_cast(array.dtype, table.dtype, "same_kind"):
        raise ShapeMismatch(f"table {table.name}: pushed dtype {array.dtype} does not fit {table.dtype}")
    flat: Array = np.ascontiguousarray(array, dtype=table.dtype).reshape(-1)
    return flat


def not_finite(table: str) -> NonFinite:
    """What a push to this table gets."""
    return NonFinite(f"table {table}: the push contains NaN or infinity")


def combine_repeats(table: Table, ids: Ids, values: Array) -> TablePush:
    """One entry per block, ascending; ``values`` is packed as ``ids``.

    Repeats are summed (rule ``assign``: the last wins).
    """
    unique, sums = _combine_entries(table, ids, values, lambda keys: table.layout.take(keys.astype(np.int64)))
    return TablePush(unique.astype(np.uint32, copy=False), sums)


def _combine_entries(
    table: Table, keys: RowNames, values: Array, make_layout: Callable[[RowNames], Layout]
) -> tuple[RowNames, Array]:
    """Blocks or rows, each once and ascending; ``make_layout``: of the values of such keys, packed."""
    if is_ascending(keys):
        return keys, values
    unique, inverse = np.unique(keys, return_inverse=True)
    target = make_layout(unique)
    if table.rule.kind == "assign" or len(unique) == len(keys):
        out = np.empty(target.elements, dtype=values.dtype)
        out[target.indices(inverse.astype(np.int64))] = values
    elif target.width:
        order = np.argsort(inverse, kind="stable")
        starts = np.searchsorted(inverse[order], np.arange(len(unique)))
        with np.errstate(over="ignore", invalid="ignore"):  # who copies them looks
            sums = np.add.reduceat(values.reshape(-1, target.width)[order], starts, axis=0)
        out = sums.reshape(-1).astype(values.dtype, copy=False)
    else:
        out = np.zeros(target.elements, dtype=values.dtype)
        np.add.at(out, target.indices(inverse.astype(np.int64)), values)
    return unique, out


# --- shares of shards
# ------------------------------------------------------------------------------------------------------------


def cut_blocks(job: Job, table: str, push: TablePush, positions: Positions) -> TablePush:
    """The blocks of a push at these (ascending) positions."""
    if len(positions) == len(push.ids):
        return push
    spec = job.table(table)
    ids = push.ids[positions]
    if push.rows is None:
        layout = spec.layout.take(push.ids.astype(np.int64))
        return TablePush(ids, layout.gather(push.values, positions), short=push.short)
    at = np.flatnonzero(positions_of(ids, spec.find_blocks(push.rows)) >= 0)
    layout = Layout.even(len(push.rows), spec.row_elements)
    return TablePush(ids, layout.gather(push.values, at), push.rows[at], push.short)


def merge_pushes(job: Job, pushes: Sequence[ShardPush]) -> ShardPush:
    """These pushes, none of which was sent, as one: their sum (rule ``assign``: the last).

    Who has the sum has all of them, so it has the number of the last, and the clock of the first.
    """
    tables: dict[str, TablePush] = {}
    for name in {table: None for push in pushes for table in push.tables}:
        parts = [push.tables[name] for push in pushes if name in push.tables]
        tables[name] = parts[0] if len(parts) == 1 else _merge_parts(job.table(name), parts)
    return ShardPush(
        max(push.push_id for push in pushes),
        min(push.clock for push in pushes),
        tables,
        resent=any(push.resent for push in pushes),
        merged=sum(push.merged for push in pushes),
    )


def _merge_parts(table: Table, parts: Sequence[TablePush]) -> TablePush:
    """Whole blocks count as all of their rows where others are rows."""
    values = np.concatenate([part.values for part in parts])
    if all(part.rows is None for part in parts):
        ids = np.concatenate([part.ids for part in parts])
        return combine_repeats(table, ids, values)
    return pack_rows(table, values, np.concatenate([_rows_of(table, part) for part in parts]))


def _rows_of(table: Table, push: TablePush) -> RowNames:
    if push.rows is not None:
        return push.rows
    return table.row_counts.indices(push.ids.astype(np.int64)).astype(np.uint32)
