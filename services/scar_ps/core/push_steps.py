"""A step of a table's rule with a part of a push: on blocks, on rows, or on the rows that keys have."""

from __future__ import annotations

import numpy as np

from scar.tables import Rule
from scar_ps.core.block_arrays import OnProgress
from scar_ps.core.block_store import BlockStore, StoreSlice
from scar_ps.core.keyed_store import KeyedBlockStore
from scar_ps.core.update_rules import apply_push


def expire_rows(store: BlockStore, clock: int) -> None:
    """This clock begins: rows go whose keys were not pushed for too long."""
    if isinstance(store, KeyedBlockStore):
        store.expire_rows(clock)


def expire_replayed(store: BlockStore, clock: int) -> None:
    """This clock begins once more for blocks that were put back."""
    if isinstance(store, KeyedBlockStore):
        store.expire_replayed(clock)


def apply_part(part: StoreSlice, rule: Rule, clock: int, progress: OnProgress) -> None:
    """``clock``: in which it is applied. What keys without a row were pushed is dropped and counted."""
    store = part.store
    if not isinstance(store, KeyedBlockStore):
        apply_push(store, part.positions, part.values, progress, rule, part.rows)
        return
    if part.rows is None:
        return  # a push of nothing
    store.expire_rows(clock)
    rows = store.touch_rows(part.rows.astype(np.uint64, copy=False), clock, progress)
    kept = np.flatnonzero(rows >= 0)
    order = kept[np.argsort(rows[kept])]
    values = np.asarray(part.values).reshape(-1, store.table.row_elements)[order].reshape(-1)
    apply_push(store, part.positions, values, progress, rule, rows[order])
