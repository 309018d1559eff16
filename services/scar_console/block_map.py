"""How old what is saved of each block is, in as many cells as a screen can show. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from scar.placement import NOBODY, Epoch
from scar_runtime.checkpoint.running_checkpoint import RunningCheckpoint

MAX_CELLS = 2048
NEVER = -1  # a block that no manifest has: a restore would begin it anew, at x(0)

SavedClocks = Mapping[str, NDArray[np.int64]]  # by table, of each block


@dataclass(frozen=True)
class BlockMap:
    """``cells``: the lowest saved clock among each ``width`` blocks, counted over the job's tables in their
    order. ``oldest``: the same among all blocks that a shard owns, by its name. ``moved``: cells of which a
    block changed hands or value with ``epoch``, by where it came from: "object", "initial", ...
    """

    job: str = ""
    manifest: int = 0
    blocks: int = 0
    width: int = 1
    cells: tuple[int, ...] = ()
    oldest: Mapping[str, int] = field(default_factory=dict)
    epoch: int = 0
    moved: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def saved_clocks(running: RunningCheckpoint) -> SavedClocks:
    """At which clock the newest copy of each block was made; :data:`NEVER` without one."""
    clocks = {table.name: np.full(table.blocks, NEVER, np.int64) for table in running.job.tables}
    for header in running.headers:  # a later one wins
        for group in header.groups:
            clocks[group.table][group.ids] = group.clock
    return clocks


def draw_map(running: RunningCheckpoint, epoch: Epoch, limit: int = MAX_CELLS) -> BlockMap:
    """At most ``limit`` cells, of a power of two of blocks each."""
    clocks = saved_clocks(running)
    flat = np.concatenate(list(clocks.values()))
    width = 1
    while -(-len(flat) // width) > limit:
        width *= 2
    cells = np.minimum.reduceat(flat, np.arange(0, len(flat), width))
    return BlockMap(
        running.job.name,
        running.manifest.number,
        len(flat),
        width,
        tuple(cells.tolist()),
        _oldest_by_shard(clocks, epoch),
        epoch.number,
        _moved_cells(clocks, epoch, width),
    )


def _moved_cells(clocks: SavedClocks, epoch: Epoch, width: int) -> dict[str, tuple[int, ...]]:
    begins = dict(zip(clocks, np.cumsum([0, *map(len, clocks.values())]), strict=False))
    found: dict[str, set[int]] = {}
    for group in epoch.moved:
        if group.table in begins:
            cells = np.unique((begins[group.table] + group.ids.astype(np.int64)) // width)
            found.setdefault(group.source.name.lower(), set()).update(cells.tolist())
    return {source: tuple(sorted(cells)) for source, cells in sorted(found.items())}


def _oldest_by_shard(clocks: SavedClocks, epoch: Epoch) -> dict[str, int]:
    """Of shards that own a block. Empty while the epoch is of another job, which has just begun."""
    if {table: len(saved) for table, saved in clocks.items()} != {
        table: len(owners) for table, owners in epoch.owners.items()
    }:
        return {}
    highest = np.iinfo(np.int64).max
    oldest = np.full(len(epoch.shards), highest)
    for table, saved in clocks.items():
        owners = epoch.owners[table]
        owned = owners != NOBODY
        np.minimum.at(oldest, owners[owned], saved[owned])
    return {
        shard.name: int(clock) for shard, clock in zip(epoch.shards, oldest, strict=True) if clock != highest
    }
