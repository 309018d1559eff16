"""What a recovery cost a worker: recovered blocks against the values that it pulled last. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from scar._client.core.pull_buffer import PullBuffer
from scar._client.core.rerouting import is_restored
from scar.blocks import Array, Ids, RowNames
from scar.placement import NOBODY, BlockSource, Epoch


@dataclass(frozen=True, eq=False)
class RecoveredBlocks:
    """Blocks that a recovery put back, with the values that this worker pulled last (packed).

    ``behind``: it has finished a clock since, whose pushes the lost values may hold, or they were put back
    before. ``rows``: the values are of these rows of them alone. ``sent``: this worker has put them back.
    """

    epoch: int
    table: str
    ids: Ids
    cached: Array
    behind: bool
    rows: RowNames | None = None
    sent: bool = False

    def squared_distance(self, restored: Array) -> float:
        """||restored - cached||^2; not a number where either is not."""
        return float(np.square(np.subtract(restored, self.cached, dtype=np.float64)).sum())


def take_recovered(
    epoch: Epoch, cache: Mapping[str, PullBuffer], clock: int, replayed: bool = False
) -> Iterator[tuple[str, RecoveredBlocks]]:
    """Recovered blocks in the cache (what was pulled last, by table), each with its owner's key; from now on
    they are known to be out of date there. ``clock``: the worker's open one. ``replayed``: what memory had of
    a clock stands there until what was lost since is done again. Else others may have pushed to what a worker
    has put back before it could be compared: who sends it knows.
    """
    memories = {BlockSource.WORKER, BlockSource.REPLICA}
    for group in epoch.moved:
        pulled = cache.get(group.table)
        if pulled is None or pulled.lists_keys or not is_restored(group):
            continue
        ids = group.ids if pulled.ids is None else np.intersect1d(group.ids, pulled.ids, assume_unique=True)
        for owner, part in epoch.split(group.table, ids):
            if owner != NOBODY:
                behind = not pulled.holds_newest(ids[part], clock)
                pulled.mark_replaced(ids[part])
                if group.source is BlockSource.WORKER and not replayed:
                    continue
                if group.source in memories and replayed:
                    # what was lost since is sent again, so the state of that clock is what has to come back
                    if pulled.rows is not None or pulled.clock != group.clock:
                        continue
                    behind = not pulled.holds_state(ids[part], group.clock)
                at = pulled.find_positions(ids[part])
                cached = pulled.layout.gather(pulled.flat, at)
                rows = None if pulled.rows is None else pulled.rows[at]
                yield (
                    epoch.shards[owner].key,
                    RecoveredBlocks(epoch.number, group.table, ids[part], cached, behind, rows),
                )


def restores_table(epoch: Epoch, table: str) -> bool:
    """Whether the epoch has put blocks of this table back."""
    return any(group.table == table and is_restored(group) for group in epoch.moved)
