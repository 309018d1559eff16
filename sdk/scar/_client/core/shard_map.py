"""Which blocks each shard of an epoch owns, worked out once an epoch. Pure."""

from __future__ import annotations

import numpy as np

from scar.blocks import Ids, Positions
from scar.placement import Epoch


class ShardMap:
    """One epoch and its split tables: whole tables are pulled and pushed many times in an epoch."""

    def __init__(self, epoch: Epoch) -> None:
        self.epoch = epoch
        self._owned: dict[tuple[str, int], Ids] = {}
        self._splits: dict[str, list[tuple[int, Positions]]] = {}

    def owned(self, table: str, index: int) -> Ids:
        """Blocks of shard ``index``, ascending."""
        found = self._owned.get((table, index))
        if found is None:
            found = self._owned[table, index] = self.epoch.owned(table, index)
        return found

    def split_table(self, table: str) -> list[tuple[int, Positions]]:
        """Blocks of the whole table by owner, as :meth:`Epoch.split` gives them."""
        found = self._splits.get(table)
        if found is None:
            every = np.arange(len(self.epoch.owners[table]), dtype=np.uint32)
            found = self._splits[table] = self.epoch.split(table, every)
        return found
