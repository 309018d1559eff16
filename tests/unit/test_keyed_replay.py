"""Blocks of keys that a replica gives back are seen when what workers owe is done again, clock by clock."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from scar import tables
from scar.blocks import Ids
from scar.keyed_rows import mix_keys
from scar.placement import BlockSource
from scar.tables import Job
from scar_ps.core.block_data import BlockContents, IncomingBlocks
from scar_ps.core.requests import MustWait
from tests.unit.keyed_support import WIDTH, keyed_job, pull_keys, push_keys, store_of
from tests.unit.ps_support import OTHER, DrivenShard, group, next_epoch, sender, started

WORKERS = 2
CLOCKS = 22
QUIET = 18  # the clock in which nobody pushes to the blocks that are lost
RETURN = 18  # after so many clocks some keys come again, which are forgotten by then where rows expire slowly
UNIVERSE = np.random.default_rng(3).integers(-(2**63), 2**63 - 1, 60)
RETURNING = np.random.default_rng(4).integers(-(2**63), 2**63 - 1, (RETURN, 8))
POLICIES = {
    "plain": tables.keys(),
    "expiring": tables.keys(max_age=2),
    "expiring slowly": tables.keys(max_age=16),
    "admitting": tables.keys(admit_after=2),
}


def pushed(rank: int, clock: int) -> tuple[np.ndarray, np.ndarray]:
    """Keys, each once, and what a worker pushes to them in a clock."""
    drawn = np.random.default_rng([rank, clock])
    keys = np.append(drawn.choice(UNIVERSE, 25, replace=False), RETURNING[clock % RETURN])
    return keys, drawn.normal(size=(len(keys), WIDTH)).astype(np.float32)


class PushingMembers:
    """All workers, as one shard hears them: only of keys in these blocks."""

    def __init__(self, spec: Job, shard: DrivenShard) -> None:
        self._table = spec.table("w")
        self._shard = shard
        self._seqs = [0] * WORKERS

    def push(self, rank: int, clock: int, blocks: Ids) -> None:
        keys, values = pushed(rank, clock)
        found = self._table.find_blocks(mix_keys(keys))
        mine = np.isin(found, blocks) & ((clock != QUIET) | (found % 2 == 0))
        if mine.any():
            self._seqs[rank] += 1
            push_keys(self._shard, rank, self._seqs[rank], clock, keys[mine], values[mine], push_id=clock + 1)

    def close(self, clock: int, blocks: Ids) -> None:
        for rank in range(WORKERS):
            self.push(rank, clock, blocks)
        for rank in range(WORKERS):
            self._shard.mark(sender(rank), self._shard.number, clock + 1)


def live_rows(shard: DrivenShard) -> dict[int, tuple[int, bytes]]:
    """By image of the key: when it was pushed last, and its values."""
    store = store_of(shard)
    rows = store.values.reshape(-1, WIDTH)
    at = np.flatnonzero(store.used)
    return {int(store.keys[row]): (int(store.used[row]), rows[row].tobytes()) for row in at}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("stood", "open_clock"), [(18, 18), (18, 19), (16, 20), (19, 18)])
def test_rows_that_a_replica_gives_back_are_what_they_would_have_been(
    policy: str, stood: int, open_clock: int
) -> None:
    """``stood``: clock of the copy; ``open_clock``: of its new owner, which may be ahead or behind."""
    spec: Job = keyed_job(policy=POLICIES[policy], capacity=400, recovery="sync-chain", shards=2)
    everything = np.arange(spec.table("w").blocks, dtype=np.uint32)
    kept, lost = everything[everything % 2 == 0], everything[everything % 2 == 1]
    undisturbed, _ = started(spec, workers=WORKERS)
    others = PushingMembers(spec, undisturbed)
    copy: BlockContents | None = None
    for clock in range(CLOCKS):
        if clock == stood:
            copy = store_of(undisturbed).copy_blocks(lost.astype(np.int64))
        others.close(clock, everything)
    assert copy is not None
    shard, epoch = started(spec, {"w": kept}, workers=WORKERS)
    members = PushingMembers(spec, shard)
    for clock in range(open_clock):
        members.close(clock, kept)
    shard.ownership.keep_incoming([IncomingBlocks(epoch.number, OTHER.key, "w", lost, copy)])
    watermark = {f"w{rank}": stood for rank in range(WORKERS)}
    restored = replace(group("w", lost, OTHER, BlockSource.REPLICA, **watermark), clock=stood)
    after = next_epoch(epoch, gained={"w": lost}, moved=[restored], failure=1)
    shard.adopt(after, spec)
    for rank in reversed(range(WORKERS)):  # what is owed, in any order
        for clock in range(stood, open_clock):
            members.push(rank, clock, lost)
    with pytest.raises(MustWait, match="what workers owe"):
        pull_keys(shard, 0, UNIVERSE)
    for rank in range(WORKERS):
        shard.settle(sender(rank), after.number)
    for clock in range(open_clock, CLOCKS):
        members.close(clock, everything if clock >= stood else kept)
    assert live_rows(shard) == live_rows(undisturbed)
