"""One table of a shard before and after an epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from scar_ps.core.block_data import InheritedPush
from scar_ps.core.block_store import BlockStore, Mask, StoreSlice


@dataclass(eq=False, slots=True)
class Relocation:
    """One table before and after an epoch.

    ``gained``: mask over the new blocks; ``pushes``: those that came along with them.
    """

    old: BlockStore
    new: BlockStore
    gained: Mask
    pushes: Sequence[InheritedPush] = ()

    def select_kept(self, part: StoreSlice) -> StoreSlice | None:
        """The part of ``part`` whose blocks stayed here with their values; None when nothing is left."""
        target = self.new.find_blocks(part.ids)
        stayed = target >= 0
        # this shard may have kept nothing, and gained nothing either
        stayed[stayed] = ~self.gained[target[stayed]]
        if not stayed.any():
            return None
        if not stayed.all():
            part = part.select_blocks(np.flatnonzero(stayed))
            target = target[stayed]
        rows = None if part.rows is None else self.new.locate_rows(self.old.table_rows(part.rows))[1]
        return StoreSlice(self.new, None if len(target) == len(self.new) else target, part.values, rows)

    def place_inherited(self, push: InheritedPush) -> StoreSlice:
        """What came along with gained blocks."""
        if push.rows is None:
            return StoreSlice(self.new, self.new.locate_blocks(push.ids), push.values)
        positions, rows = self.new.locate_rows(push.rows)
        return StoreSlice(self.new, positions, push.values, rows)


def select_kept(part: StoreSlice, relocations: Mapping[str, Relocation]) -> StoreSlice | None:
    """:meth:`Relocation.select_kept` when the part's table is among those that changed."""
    relocation = relocations.get(part.store.table.name)
    return part if relocation is None else relocation.select_kept(part)
