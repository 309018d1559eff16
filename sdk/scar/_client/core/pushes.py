"""A push: the user's arrays, what each shard gets of them, and what is kept until it is applied. Pure.

Every check that a shard would make is made here first, so that a bad push fails in the call that made it,
before any shard has seen a part of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from scar._client.core.clocks import DONE
from scar._client.core.shard_map import ShardMap
from scar.blocks import Array, Ids, Positions, all_finite, is_ascending
from scar.errors import BlockOutOfRange, InvalidRequest, NonFinite, ShapeMismatch
from scar.placement import NOBODY
from scar.tables import Job, Table

NOWHERE = ""  # key of pushes to blocks that have no owner at the moment


@dataclass(frozen=True, slots=True)
class PackedTable:
    """What a user pushed to one table: flat values of these blocks (ascending ids; None: the whole table).

    ``short``: they are bfloat16's, and travel as such.
    """

    ids: Ids | None
    values: Array
    short: bool = False


@dataclass(frozen=True, slots=True)
class TablePush:
    """Blocks of one table (ascending ids) and what was pushed to them, packed flat.

    ``short``: the values are bfloat16's, and travel as such. A sum of several is not, and travels as it is.
    """

    ids: Ids
    values: Array
    short: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class ShardPush:
    """What one shard gets of one ``push()``.

    ``seq``: its number in the stream to the shard; 0: never sent. ``applied_clock``: the clock that the shard
    applies it with: its own, or a later one when it came late. ``resent``: sent again after an epoch change;
    the shard's blocks are not settled before it arrived. ``merged``: pushes that it is the sum of;
    ``push_id`` is that of the last.
    """

    push_id: int
    clock: int
    tables: Mapping[str, TablePush]
    seq: int = 0
    acked: bool = False
    applied_clock: int = 0
    resent: bool = False
    merged: int = 1

    @property
    def bytes(self) -> int:
        return sum(table.values.nbytes for table in self.tables.values())


# --- a user's arrays
# ------------------------------------------------------------------------------------------------------------


def pack_table(table: Table, values: ArrayLike, ids: Ids | None) -> PackedTable:
    """``values`` of shape (rows of ``ids``, *row shape), checked and flat; ``ids`` None: the whole table.

    Raises :class:`ShapeMismatch` and :class:`NonFinite`.
    """
    if ids is None:
        return PackedTable(None, flatten_values(table, values, table.shape[0]))
    flat = flatten_values(table, values, count_rows(table, ids))
    combined = combine_repeats(table, ids, flat)
    return PackedTable(combined.ids, combined.values)


def check_ids(table: Table, ids: ArrayLike) -> Ids:
    """Block ids as given by a user: any order, repeats allowed.

    Raises :class:`BlockOutOfRange` or :class:`InvalidRequest`.
    """
    array = np.asarray(ids)
    if array.size == 0:
        return np.empty(0, dtype=np.uint32)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InvalidRequest(
            f"table {table.name}: ids must be one axis of integers, not {array.dtype} of shape {array.shape}"
        )
    low = int(array.min())
    high = int(array.max())
    if low < 0 or high >= table.blocks:
        rows = "" if table.blocks == table.shape[0] else f" of its {table.shape[0]} rows, and ids are blocks"
        wrong = low if low < 0 else high
        raise BlockOutOfRange(f"block {wrong} is out of range, table {table.name} has {table.blocks}{rows}")
    return array.astype(np.uint32)


def count_rows(table: Table, ids: Ids) -> int:
    """Rows of the first axis that these blocks have together."""
    return int((table.row_offsets[ids.astype(np.int64) + 1] - table.row_offsets[ids]).sum())


def flatten_values(table: Table, values: ArrayLike, rows: int) -> Array:
    """``values`` of shape (rows, *row shape) as flat contiguous elements of the table's dtype.

    The result may share memory with them. Raises :class:`ShapeMismatch` and :class:`NonFinite`.
    """
    array = np.asarray(values)
    expected = (rows, *table.shape[1:])
    if array.shape != expected:
        raise ShapeMismatch(f"table {table.name}: pushed shape {array.shape}, expected {expected}")
    if not np.can_cast(array.dtype, table.dtype, "same_kind"):
        raise ShapeMismatch(f"table {table.name}: pushed dtype {array.dtype} does not fit {table.dtype}")
    flat: Array = np.ascontiguousarray(array, dtype=table.dtype).reshape(-1)
    if table.dtype.kind == "f" and not table.allow_nonfinite and not all_finite(flat):
        raise NonFinite(f"table {table.name}: the push contains NaN or infinity")
    return flat


def combine_repeats(table: Table, ids: Ids, values: Array) -> TablePush:
    """One entry per block, ascending; ``values`` is packed as ``ids``.

    Repeats are summed (rule ``assign``: the last wins).
    """
    if is_ascending(ids):
        return TablePush(ids, values)
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
    return TablePush(unique.astype(np.uint32), out)


# --- shares of shards
# ------------------------------------------------------------------------------------------------------------


def split_by_owner(
    job: Job, shards: ShardMap, tables: Mapping[str, PackedTable]
) -> dict[str, dict[str, TablePush]]:
    """Copies of the values, cut by owner: key of the shard (or :data:`NOWHERE`) -> table -> its blocks."""
    shares: dict[str, dict[str, TablePush]] = {}
    for name, packed in tables.items():
        layout = job.table(name).layout
        if packed.ids is None:
            owners = shards.split_table(name)
        else:
            layout = layout.take(packed.ids.astype(np.int64))
            owners = shards.epoch.split(name, packed.ids)
        for owner, positions in owners:
            key = NOWHERE if owner == NOBODY else shards.epoch.shards[owner].key
            ids = shards.owned(name, owner) if packed.ids is None else packed.ids[positions]
            values = layout.gather(packed.values, positions)
            shares.setdefault(key, {})[name] = TablePush(ids, values, packed.short)
    return shares


def cut_blocks(job: Job, table: str, push: TablePush, positions: Positions) -> TablePush:
    """The blocks of a push at these (ascending) positions."""
    if len(positions) == len(push.ids):
        return push
    layout = job.table(table).layout.take(push.ids.astype(np.int64))
    return TablePush(push.ids[positions], layout.gather(push.values, positions), push.short)


def merge_pushes(job: Job, pushes: Sequence[ShardPush]) -> ShardPush:
    """These pushes, none of which was sent, as one: their sum (rule ``assign``: the last).

    Who has the sum has all of them, so it has the number of the last, and the clock of the first.
    """
    tables: dict[str, TablePush] = {}
    for name in {table: None for push in pushes for table in push.tables}:
        parts = [push.tables[name] for push in pushes if name in push.tables]
        if len(parts) == 1:
            tables[name] = parts[0]
            continue
        ids = np.concatenate([part.ids for part in parts])
        values = np.concatenate([part.values for part in parts])
        tables[name] = combine_repeats(job.table(name), ids, values)
    return ShardPush(
        max(push.push_id for push in pushes),
        min(push.clock for push in pushes),
        tables,
        resent=any(push.resent for push in pushes),
        merged=sum(push.merged for push in pushes),
    )


class ResendBuffer:
    """Pushes of one stream that may have to be sent again, in order.

    ``until_closed``: keep them after the acknowledgement, until their clock is closed (BSP), and as many
    more clocks as ``closed_kept``. ``merge``: makes one push of those that wait behind one that is under way.
    """

    def __init__(
        self,
        until_closed: bool,
        merge: Callable[[Sequence[ShardPush]], ShardPush] | None = None,
        closed_kept: int = 0,
    ) -> None:
        self._until_closed = until_closed
        self._closed_kept = closed_kept
        self._merge = merge
        self._acked: list[ShardPush] = []
        self._waiting: deque[ShardPush] = deque()
        self._seq = 0
        self.clock = 0  # newest open clock that the shard has told
        self.waiting_bytes = 0

    def append(self, push: ShardPush) -> None:
        self._waiting.append(push)
        self.waiting_bytes += push.bytes

    def next_push(self) -> ShardPush | None:
        """The oldest push that is not acknowledged; it gets its number now, because it is sent next."""
        if not self._waiting:
            return None
        if not self._waiting[0].seq:
            self.merge_unsent()
        if not self._waiting[0].seq:
            self._seq += 1
            self._waiting[0] = replace(self._waiting[0], seq=self._seq)
        return self._waiting[0]

    def merge_unsent(self) -> None:
        """Make one of all pushes that were never sent, where that is allowed."""
        unsent = [push for push in self._waiting if not push.seq]
        if self._merge is not None and len(unsent) > 1:
            self._waiting = deque([*(push for push in self._waiting if push.seq), self._merge(unsent)])
            self.waiting_bytes = sum(push.bytes for push in self._waiting)

    def acknowledge(self, seq: int, clock: int, joins: int = 0) -> list[ShardPush]:
        """The shard, whose open clock is ``clock``, has this number. Returns what need not be kept any more.

        ``joins``: its open clock when it does not tell everybody yet; a late push is applied with that one.
        """
        if not self._waiting or self._waiting[0].seq != seq:
            return []
        push = self._waiting.popleft()
        self.waiting_bytes -= push.bytes
        if not self._until_closed:
            return [push]
        self._acked.append(replace(push, acked=True, applied_clock=max(push.clock, clock, joins)))
        return self.see_clock(clock)

    def see_clock(self, clock: int) -> list[ShardPush]:
        """The shard contains what it applied before its open clock ``clock``. Returns what is released."""
        self.clock = max(self.clock, clock)
        oldest = self.clock - self._closed_kept
        released = [push for push in self._acked if push.applied_clock < oldest]
        if released:
            self._acked = [push for push in self._acked if push.applied_clock >= oldest]
        return released

    def pushes(self) -> list[ShardPush]:
        return [*self._acked, *self._waiting]

    def replace_pushes(self, pushes: Sequence[ShardPush]) -> None:
        """What is left of :meth:`pushes` after an epoch change, in the same order, and what it added."""
        self._acked = [push for push in pushes if push.acked]
        self._waiting = deque(push for push in pushes if not push.acked)
        self.waiting_bytes = sum(push.bytes for push in self._waiting)

    def blocks_mark(self, finished: int) -> bool:
        """Whether pushes wait that must arrive before the mark of ``finished`` clocks."""
        return any(push.resent or push.clock < finished for push in self._waiting)

    def blocks_settle(self) -> bool:
        """Whether something that was sent again because of an epoch is not acknowledged."""
        return any(push.resent for push in self._waiting)

    @property
    def merges(self) -> bool:
        return self._merge is not None

    @property
    def first_clock(self) -> int:
        """Lowest clock of what waits; no clock: :data:`DONE`."""
        return min((push.clock for push in self._waiting), default=DONE)

    @property
    def idle(self) -> bool:
        """Everything is acknowledged."""
        return not self._waiting

    @property
    def empty(self) -> bool:
        """Everything is applied."""
        return not self._waiting and not any(push.applied_clock >= self.clock for push in self._acked)
