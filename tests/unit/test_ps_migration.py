"""Live moves between two shards, over the wire: pushes that wait for their clock go with their blocks
(docs/protocol.md §7).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from scar._client.core.clocks import ShardRecord, WorkerClocks
from scar._client.core.push_state import EpochSettled, MarkTaken, StreamState
from scar._client.core.shard_map import ShardMap
from scar._client.core.stream_steps import SettleEpoch
from scar.errors import Internal
from scar.placement import BlockSource
from scar.tables import Table
from scar_ps.core.block_data import InheritedPush
from scar_ps.core.core_state import CoreState
from scar_ps.core.migrations import FrozenBlocks
from scar_ps.core.requests import StagedPush
from scar_ps.wire import migration
from tests.unit.ps_support import (
    ME,
    OTHER,
    DrivenShard,
    group,
    ids,
    job,
    load_initial,
    next_epoch,
    part,
    push,
    sender,
    started,
    values,
    worker,
)

PAIR = job(Table("w", (4, 1)), Table("v", (2, 1)), consistency="bsp")
HERE, THERE = {"w": ids(0, 1), "v": ids(0)}, {"w": ids(2, 3), "v": ids(1)}


def two_shards():
    """Donor and target in epoch 1: worker 0 has pushed 1 to every block and finished clock 0, worker 1 has
    done nothing.
    """
    donor, epoch = started(PAIR, HERE, workers=2)
    target = DrivenShard(OTHER)
    load_initial(target, PAIR, target.adopt(epoch, PAIR))
    for shard, owned in ((donor, HERE), (target, THERE)):
        shard.settle(sender(0), 1)
        shard.settle(sender(1), 1)
        parts = {name: part(shard, name, blocks, np.ones(len(blocks))) for name, blocks in owned.items()}
        shard.push(StagedPush(sender(0), 1, 1, 1, 0, parts))
        shard.mark(sender(0), 1, 1, None)
    return donor, target, epoch


def moved_over(donor, target, epoch, **changes):
    """Blocks 1 of w and 0 of v go from the donor to the target, over the wire."""
    wanted = [("w", ids(1)), ("v", ids(0))]
    watermark = donor.freeze(1, wanted)
    offer = donor.offer(1, wanted)
    target.put_aside(migration.decode_frozen(migration.encode_frozen(offer, 1), PAIR, ME.key, 1))
    groups = [
        replace(group(name, blocks, ME, BlockSource.DONOR), watermark=watermark) for name, blocks in wanted
    ]
    after = next_epoch(epoch, lost=dict(wanted), moved=groups, **changes)
    donor.adopt(after, PAIR)
    target.adopt(after, PAIR)
    return after


def finish_clock(shard, rank, life=0):
    shard.settle(sender(rank, life), shard.number)
    shard.mark(sender(rank, life), shard.number, 1, None)


def test_what_a_dead_worker_had_finished_goes_with_the_blocks():
    donor, target, epoch = two_shards()
    after = moved_over(donor, target, epoch)
    heir = next_epoch(after, workers=(worker(0, 1), worker(1)))  # worker 0 died before it could send again
    for shard in (donor, target):
        shard.adopt(heir, PAIR)
        shard.settle(sender(0, 1), 3)
        assert shard.barrier.finished_clocks("worker-0") == 1, "its next life goes on with the next clock"
        finish_clock(shard, 0, 1)
        finish_clock(shard, 1)
    assert (donor.clock, target.clock) == (1, 1)
    assert values(donor) == [1]
    assert values(target) == [1, 1, 1]
    assert values(target, "v") == [1, 1]


def test_what_a_worker_that_left_for_good_had_finished_counts_too():
    donor, target, epoch = two_shards()
    moved_over(donor, target, epoch, workers=(worker(1),))
    finish_clock(target, 1)
    assert values(target) == [1, 1, 1]


def test_a_living_worker_sends_it_again_and_it_counts_once():
    donor, target, epoch = two_shards()
    moved_over(donor, target, epoch)
    again = {"w": part(target, "w", ids(1), [1]), "v": part(target, "v", ids(0), [1])}
    target.push(StagedPush(sender(0), 2, 2, 1, 0, again))
    finish_clock(target, 0)
    finish_clock(target, 1)
    assert values(target) == [1, 1, 1]
    assert values(target, "v") == [1, 1]


def test_half_of_it_sent_again_replaces_just_that_half():
    donor, target, epoch = two_shards()
    moved_over(donor, target, epoch)
    target.push(StagedPush(sender(0), 2, 2, 1, 0, {"v": part(target, "v", ids(0), [5])}))
    finish_clock(target, 0)
    finish_clock(target, 1)
    assert values(target) == [1, 1, 1]
    assert values(target, "v") == [5, 1]


def test_what_a_dead_worker_had_not_finished_is_done_anew_and_counts_once():
    donor, epoch = started(PAIR, HERE, workers=2)
    target = DrivenShard(OTHER)
    load_initial(target, PAIR, target.adopt(epoch, PAIR))
    for shard in (donor, target):
        shard.settle(sender(0), 1)
        shard.settle(sender(1), 1)
    push(donor, 0, 1, ids(0, 1), [1, 1])  # no mark: the clock is not finished
    heir = next_epoch(epoch, workers=(worker(0, 1), worker(1)))
    target.adopt(heir, PAIR)
    target.mark(sender(0, 1), 2, 0)  # it begins here before the blocks come
    wanted = [("w", ids(1)), ("v", ids(0))]
    donor.adopt(heir, PAIR)
    donor.freeze(2, wanted)
    offer = donor.offer(2, wanted)
    target.put_aside(migration.decode_frozen(migration.encode_frozen(offer, 2), PAIR, ME.key, 2))
    target.adopt(
        next_epoch(heir, lost=dict(wanted), moved=[group(n, b, ME, BlockSource.DONOR) for n, b in wanted]),
        PAIR,
    )
    push(target, 0, 1, ids(1), [1], life=1)
    finish_clock(target, 0, 1)
    finish_clock(target, 1)
    assert values(target) == [1, 0, 0]


def test_a_move_that_did_not_happen_brings_nothing():
    donor, target, epoch = two_shards()
    wanted = [("w", ids(1))]
    donor.freeze(1, wanted)
    offer = donor.offer(1, wanted)
    target.put_aside(migration.decode_frozen(migration.encode_frozen(offer, 1), PAIR, ME.key, 1))
    after = next_epoch(epoch)
    for shard in (donor, target):
        shard.adopt(after, PAIR)
        finish_clock(shard, 0)
        finish_clock(shard, 1)
    assert values(donor) == [1, 1]
    assert values(target) == [1, 1]


def test_pushes_for_blocks_that_were_not_offered_are_refused():
    donor, _target, _epoch = two_shards()
    donor.freeze(1, [("w", ids(1))])
    parts = donor.frozen(1, [("w", ids(1))])
    stray = InheritedPush(sender(0), 1, 0, ids(0), np.ones(1, np.float32))
    with pytest.raises(Internal, match="for other blocks"):
        migration.decode_frozen(
            migration.encode_frozen(FrozenBlocks(parts, [[stray]], []), 1), PAIR, ME.key, 1
        )


def closed_here_open_there():
    """The target has closed clock 0, for which the donor, who has not heard of that yet, keeps what both
    have pushed.
    """
    donor, target, epoch = two_shards()
    push(donor, 1, 1, ids(1), [2])
    push(target, 1, 1, ids(2, 3), [1, 1])
    target.mark(sender(1), 1, 1, None)
    assert (donor.clock, target.clock) == (0, 1)
    return target, moved_over(donor, target, epoch)


def test_what_came_along_for_a_clock_that_is_closed_here_counts_at_once():
    """Nobody can have pulled clock 1 from the donor, so whoever pulls it here finds what an undisturbed
    run has.
    """
    target, after = closed_here_open_there()
    assert values(target) == [3, 2, 2]
    assert values(target, "v") == [1, 1]
    pulled = target.pull(sender(1), after.number, 1, [("w", ids(1))])
    assert pulled[0].store.values[0] == 3


def test_what_was_applied_at_once_and_is_sent_again_counts_once():
    target, after = closed_here_open_there()
    again = {"w": part(target, "w", ids(1), [1]), "v": part(target, "v", ids(0), [1])}
    target.push(StagedPush(sender(0), after.number, 2, 1, 0, again))
    push(target, 1, 2, ids(1), [2], push_id=1)
    push(target, 1, 3, ids(1), [4], push_id=2, clock=1)
    for rank in (0, 1):
        target.settle(sender(rank), after.number)
        target.mark(sender(rank), after.number, 2, None)
    assert values(target) == [7, 2, 2]
    assert values(target, "v") == [1, 1]


def test_a_state_on_which_training_waits_is_not_changed_by_what_comes_along():
    donor, target, epoch = two_shards()
    target.mark(sender(1), 1, 1, None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CoreState, "is_stalled", True)
        after = moved_over(donor, target, epoch)
        assert values(target) == [0, 1, 1]
    for rank in (0, 1):
        target.settle(sender(rank), after.number)
        target.mark(sender(rank), after.number, 2, None)
    assert values(target) == [1, 1, 1]


def tell_end(shard, rank, epoch):
    """As a worker does that has finished clock 0, the last one, and never heard of this shard before."""
    clocks = WorkerClocks()
    clocks.known = 1
    clocks.done = True
    stream = StreamState(PAIR, OTHER, None)
    shards = ShardMap(epoch)
    while (step := stream.next_step(shards, clocks)) is not None:
        if isinstance(step, SettleEpoch):
            known = shard.settle(sender(rank), step.epoch)
            stream.handle(EpochSettled(step.epoch, ShardRecord(known.clock, known.finished, known.joins)))
        else:
            shard.mark(sender(rank), step.epoch, step.finished, step.part)
            stream.handle(MarkTaken(step.epoch, step.mark, shard.clock))


def test_a_shard_of_which_workers_hear_when_they_are_done_closes_the_last_clock():
    """Its clock is as the donor's was when it froze the blocks; what waits there for the clock is applied."""
    donor, epoch = started(PAIR, None, workers=2)
    target = DrivenShard(OTHER)
    target.adopt(epoch, PAIR)
    for rank in (0, 1):
        push(donor, rank, 1, None, np.ones(4))
    finish_clock(donor, 0)
    wanted = [("w", ids(1, 2, 3))]
    donor.freeze(1, wanted)
    offer = donor.offer(1, wanted)
    finish_clock(donor, 1)
    assert donor.clock == 0, "nothing changes while blocks are on their way"
    target.put_aside(migration.decode_frozen(migration.encode_frozen(offer, 1), PAIR, ME.key, 1))
    moved = [group(name, blocks, ME, BlockSource.DONOR) for name, blocks in wanted]
    after = next_epoch(epoch, lost=dict(wanted), moved=moved)
    for shard in (donor, target):
        shard.adopt(after, PAIR)
    for rank in (0, 1):
        tell_end(target, rank, after)
    assert (donor.clock, target.clock) == (1, 1)
    assert values(target) == [2, 2, 2]
