"""What each shard gets of a push, copied once: where it can be sent from, if there is such memory. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from scar._client.core.pushes import NOWHERE, PackedTable, TablePush, not_finite
from scar._client.core.shard_map import ShardMap
from scar.blocks import Array, Layout, Positions, drop_repeats
from scar.placement import NOBODY
from scar.tables import Job

ALIGNMENT = 8  # bytes: the largest element
Borrow = Callable[[str, int], Array | None]


@dataclass(frozen=True, slots=True)
class _Cut:
    """What one shard gets of one table: ``push``, without its values yet."""

    name: str
    push: TablePush
    packed: PackedTable
    layout: Layout
    positions: Positions
    look: bool  # for NaN and infinity

    @property
    def room(self) -> int:
        """Bytes of memory for its values, as they are sent."""
        size = self.layout.count_elements(self.positions) * self.packed.values.itemsize
        return 0 if self.packed.short else -(-size // ALIGNMENT) * ALIGNMENT

    def fill(self, memory: Array | None) -> TablePush:
        """With a copy of its values, in ``memory`` where there is some. Raises :class:`NonFinite`."""
        flat = self.packed.values
        count = self.layout.count_elements(self.positions)
        if memory is None or not self.room:
            values: Array = np.empty(count, flat.dtype)
        else:
            values = memory[: count * flat.itemsize].view(flat.dtype)
        if not self.layout.gather_into(flat, self.positions, values, self.look):
            raise not_finite(self.name)
        return replace(self.push, values=values)


def split_by_owner(
    job: Job, shards: ShardMap, tables: Mapping[str, PackedTable], borrow: Borrow = lambda _key, _size: None
) -> dict[str, dict[str, TablePush]]:
    """Copies of the values, cut by owner: key of the shard (or :data:`NOWHERE`) -> table -> its blocks.

    ``borrow``: memory for so many bytes to a shard, from which they can be sent; None: there is none. Raises
    :class:`NonFinite`.
    """
    shares: dict[str, dict[str, TablePush]] = {}
    for key, cuts in _cut_by_owner(job, shards, tables).items():
        memory = borrow(key, sum(cut.room for cut in cuts))
        shares[key] = {}
        for cut in cuts:
            shares[key][cut.name] = cut.fill(memory)
            memory = None if memory is None else memory[cut.room :]
    return shares


def _cut_by_owner(job: Job, shards: ShardMap, tables: Mapping[str, PackedTable]) -> dict[str, list[_Cut]]:
    cuts: dict[str, list[_Cut]] = {}
    for name, packed in tables.items():
        table = job.table(name)
        layout = table.layout
        if packed.ids is None:
            owners = shards.split_table(name)
        elif packed.rows is None:
            layout = layout.take(packed.ids.astype(np.int64))
            owners = shards.epoch.split(name, packed.ids)
        else:
            layout = Layout.even(len(packed.rows), table.row_elements)
            owners = shards.epoch.split(name, table.find_blocks(packed.rows))
        nothing = packed.values[:0]
        for owner, positions in owners:
            key = NOWHERE if owner == NOBODY else shards.epoch.shards[owner].key
            if packed.rows is not None:
                rows = packed.rows[positions]
                push = TablePush(drop_repeats(table.find_blocks(rows)), nothing, rows, packed.short)
            else:
                ids = shards.owned(name, owner) if packed.ids is None else packed.ids[positions]
                push = TablePush(ids, nothing, short=packed.short)
            look = table.finite_only and not packed.short
            cuts.setdefault(key, []).append(_Cut(name, push, packed, layout, positions, look))
    return cuts
