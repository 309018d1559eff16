"""Copies that a shard keeps for others: what it refuses, and what it forgets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from scar.blocks import BlockState
from scar.errors import OutOfOrder
from scar.placement import BlockGroup, BlockSource
from scar_ps.core.block_data import CopiedBlocks
from scar_ps.core.block_store import BlockStore
from scar_ps.core.replica_store import OwnerReplica, ReplicationBatch
from tests.unit.ps_support import ME, OTHER, ids, push, worker
from tests.unit.replication_pair import Pair, job


def test_a_batch_after_one_that_never_came_is_refused() -> None:
    pair = Pair(job())
    pair.ship()
    push(pair.me, 0, 1, None, [1, 1] * 3)
    pair.load()  # lost on the way
    push(pair.me, 0, 2, None, [1, 1] * 3)
    later = pair.load()
    claimed = replace(later.batches[0], since=later.batches[0].number - 1)
    with pytest.raises(OutOfOrder):
        pair.copies[OTHER.key].receive(claimed)


def test_a_whole_batch_that_was_overtaken_is_refused() -> None:
    """It waited on the replica for longer than its owner, which has sent a newer one in its place."""
    pair = Pair(job())
    late = pair.load().batches[0]
    pair.me.failed(late, gap=False)
    push(pair.me, 0, 1, None, [1, 1] * 3)
    assert pair.ship().batches[0].since == late.since == 0
    with pytest.raises(OutOfOrder):
        pair.other.receive(late)
    assert pair.other.replicas.by_owner[ME.key].stores["w"].values.tolist() == [1.0] * 6
    pair.me.await_copy(1)


def test_who_is_no_part_of_the_chain_any_more_keeps_nothing() -> None:
    pair = Pair(job())
    pair.ship()
    assert pair.copies[OTHER.key].kept
    alone = replace(pair.epoch, shards=(ME, OTHER), number=2)
    no_copies = job(recovery="partial")
    pair.other.replicas.release_owner(no_copies, alone, ME.key)
    assert not pair.copies[OTHER.key].kept


@pytest.mark.parametrize("change", ["given away", "put back"])
def test_later_batches_say_nothing_of_blocks_that_their_owner_does_not_send(change: str) -> None:
    """What it is told of pushes meanwhile, it applies to the others."""
    pair = Pair(job())
    push(pair.me, 0, 1, None, [1, 1] * 3)
    pair.ship()
    copies = pair.other.replicas
    owners = {name: owner.copy() for name, owner in pair.epoch.owners.items()}
    owners["w"][0] = 0 if change == "put back" else 2
    group = BlockGroup("w", ids(0), watermark={worker(0).key: 1}, source=BlockSource.OBJECT)
    third = replace(OTHER, name="ps-2")
    epoch = replace(pair.epoch, number=2, shards=(ME, OTHER, third), owners=owners, moved=(group,))
    copies.adopt_epoch(epoch)
    push(pair.me, 0, 2, ids(2, 4), [1, 1] * 2)
    copies.receive_batch(pair.job, epoch, replace(pair.load().batches[0], epoch=2))
    states = copies.claim_blocks([ME.key], [("w", ids(0, 2, 4))])
    contents = {block: copy.watermark[worker(0).key] for copy in states for block in copy.ids.tolist()}
    assert contents == {0: 1, 2: 2, 4: 2}
    assert len(copies) == 4, "each block once"
    copies.release_owner(pair.job, epoch, third.key)
    assert len(copies) == (4 if change == "put back" else 3), "its owner's chain is whole"


@pytest.mark.parametrize(("restored", "left"), [(4, [2, 4]), (5, [0, 2, 4])])
def test_a_copy_with_more_than_what_was_put_back_is_dropped(restored: int, left: list[int]) -> None:
    """The owner died before it had loaded the older state, whose missing pushes are sent again or called
    lost: its next recovery must not go back to the copy.
    """
    pair = Pair(job())
    for number in range(1, 6):
        push(pair.me, 0, number, None, [1, 1] * 3)
    pair.ship()
    group = BlockGroup(
        "w", ids(0), watermark={worker(0).key: restored}, former_owner=ME.key, source=BlockSource.OBJECT
    )
    pair.epoch = replace(pair.epoch, number=2, moved=(group,))
    pair.other.adopt(pair.epoch, pair.job)
    assert sorted(block for copy in pair.kept(w=[0, 2, 4]) for block in copy.ids.tolist()) == left


def test_what_no_copy_contains_any_more_is_forgotten() -> None:
    replica = OwnerReplica(ME.key)
    table = job().tables[0]
    ids = np.arange(2, dtype=np.uint32)
    for number in range(1, 10):
        restored = BlockState(table.name, ids[number % 2 :], watermark={f"worker-0@{number:012x}": number})
        store = BlockStore(table, restored.ids)
        copied = CopiedBlocks(restored, store.copy_blocks(np.arange(len(restored.ids))))
        replica.apply_batch(job(), ReplicationBatch(ME.key, 1, number, number - 1, 1, {}, (copied,)))
        newest = replica.find_copies([(table.name, ids[1:])])
        assert [state.watermark for state in newest] == [restored.watermark]
    assert sum(map(bool, replica.base_watermarks)) == 2, "of each block one"
    assert len(replica.base_watermarks) <= 4, "numbers are used again"
