"""Who may serve: leases, fences and ownership as the shards' memory has them (G7); clocks that only rise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from scar.blocks import Ids
from scar.placement import BlockSource, Epoch


@dataclass(frozen=True, eq=False)
class ServingShard:
    """A living shard at one moment. ``leased``: it would serve, by its own clock. ``blocks``: table -> ids
    of ``epoch``.
    """

    key: str
    leased: bool
    epoch: int
    clock: int
    blocks: Mapping[str, Ids]


def taken_over(epoch: Epoch) -> set[str]:
    """Keys of the fenced whose blocks this epoch has put back, so that others serve them."""
    restored = {group.former_owner for group in epoch.moved if group.source is not BlockSource.DONOR}
    return {key for key in restored if {key, key.partition("@")[2]} & set(epoch.fenced)}


def check_takeover(epoch: Epoch, shards: list[ServingShard]) -> list[str]:
    """No shard may serve any more when the epoch that gives its blocks to others comes to be."""
    gone = taken_over(epoch)
    return [
        f"epoch {epoch.number} gives the blocks of {shard.key} to others, and its lease is not over"
        for shard in shards
        if shard.leased and shard.key in gone
    ]


class ShardWatch:
    """Compares shards with the epochs that they serve, and with what they were a second ago. ``gone``: keys
    of those whose blocks were put back elsewhere.
    """

    def __init__(self) -> None:
        self.gone: set[str] = set()
        self._compared: dict[str, int] = {}  # shard -> epoch whose blocks were compared
        self._clocks: dict[str, tuple[int, int]] = {}  # shard -> epoch and clock that it had

    def look(self, shards: list[ServingShard], epochs: Mapping[int, Epoch]) -> list[str]:
        found = []
        for shard in shards:
            before = self._clocks.get(shard.key, (0, 0))
            if shard.epoch and (shard.epoch < before[0] or shard.clock < before[1]):
                now = f"epoch {shard.epoch}, clock {shard.clock}"
                found.append(f"{shard.key} went back from epoch {before[0]}, clock {before[1]} to {now}")
            self._clocks[shard.key] = (max(shard.epoch, before[0]), max(shard.clock, before[1]))
            if shard.leased and shard.key in self.gone:
                found.append(f"{shard.key} has a lease again, and others serve its blocks")
            if shard.epoch and self._compared.get(shard.key) != shard.epoch:
                self._compared[shard.key] = shard.epoch
                found += _check_blocks(shard, epochs.get(shard.epoch))
        return found


def _check_blocks(shard: ServingShard, epoch: Epoch | None) -> list[str]:
    """It has what its epoch gives to it and nothing else: so nobody else has the same in this epoch."""
    if epoch is None:
        return [f"{shard.key} serves epoch {shard.epoch}, which does not exist"]
    owned = {table: ids for table, ids in epoch.owned_by(shard.key).items() if len(ids)}
    held = {table: ids for table, ids in shard.blocks.items() if len(ids)}
    same = owned.keys() == held.keys() and all(np.array_equal(owned[name], held[name]) for name in owned)
    return [] if same else [f"{shard.key} has not the blocks that epoch {epoch.number} gives to it"]
