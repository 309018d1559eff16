"""A shard's story: what it keeps, and that it can be told again to a fresh shard."""

from __future__ import annotations

import numpy as np
import pytest

from scar.errors import NotServing
from scar.event_log import EventRing, describe_fields, name_of
from scar.tables import Job
from scar_ps.core.actions import StartLoad
from scar_ps.core.block_data import BlockContents
from scar_ps.core.distances import block_distances
from scar_ps.core.events import BlocksLoaded, LoadFailed, ShardTick, StoreChecked
from scar_ps.core.membership import CHECK_SECONDS
from scar_ps.core.requests import MustWait
from scar_ps.core.shard import Shard
from tests.framework.stories import holds_array, replay_shard
from tests.unit.ps_support import (
    ME,
    DrivenShard,
    first_epoch,
    group,
    ids,
    job,
    load_initial,
    next_epoch,
    push,
    sender,
    started,
    values,
    worker,
)

ASP = job(consistency="asp")


def test_a_story_says_why_and_keeps_no_blocks() -> None:
    shard, epoch = started(ASP)
    push(shard, 0, 1, None, [1] * 12)
    with pytest.raises(NotServing):
        push(shard, 0, 2, None, [1] * 12, epoch=2)
    entries = shard.story.entries()
    kinds = [name_of(entry.event) for entry in entries]
    assert kinds == ["EpochReceived", "BlocksLoaded", "WorkerSettled", "PushReceived"]
    assert ("moved", "6") in describe_fields(entries[0].event)
    assert entries[1].facts == {"loading": 0}
    assert entries[2].facts == {"settled_epoch": epoch.number}
    assert entries[3].event.push.parts == {}
    assert "not yet 2" in str(entries[3].facts["refused"])
    assert entries[3].skipped == {"PushReceived": 1}, "what went well is counted, not kept"
    assert not any(map(holds_array, entries))


def test_loads_are_kept_without_their_ids() -> None:
    shard = DrivenShard(ME)
    (load,) = shard.adopt(first_epoch(ASP), ASP)
    shard.handle(LoadFailed(load, "the store is away", ids(3)))
    shard.handle(BlocksLoaded(load, BlockContents(np.zeros(12, np.float32))))
    entries = shard.story.entries()
    assert ("unreadable", "1") in describe_fields(entries[1].event)
    assert not any(map(holds_array, entries))


def test_an_idle_shard_does_not_fill_its_story() -> None:
    """It looks at the store every few seconds: what happened before must stay."""
    shard, _ = started(ASP)
    known = len(shard.story.entries())
    for _ in range(1000):
        shard.now += CHECK_SECONDS / 2
        shard.handle(ShardTick(True))
        if shard.actions:
            shard.handle(StoreChecked())
    assert len(shard.story.entries()) <= known + 2
    push(shard, 0, 1, None, [1] * 12)
    with pytest.raises(NotServing):
        push(shard, 0, 2, None, [1] * 12, epoch=9)
    assert shard.story.entries()[-1].skipped["ShardTick"] > 900


@pytest.mark.parametrize("consistency", ["asp", "bsp"])
def test_the_same_events_lead_a_fresh_shard_to_the_same_actions_and_values(consistency: str) -> None:
    spec = job(consistency=consistency)
    shard = DrivenShard(ME, EventRing(complete=True))
    live_through(shard, spec)
    story = shard.story.entries()
    assert len(story) > 25
    assert any(isinstance(action, StartLoad) for entry in story for action in entry.actions)
    fresh = Shard(ME)
    assert replay_shard(story, fresh) == []
    theirs = shard.core.state
    assert fresh.state.clock == theirs.clock > 0
    assert fresh.state.counts == theirs.counts
    assert fresh.state.sequences.watermark == theirs.sequences.watermark
    for name, store in theirs.ownership.tables.items():
        again = fresh.state.ownership.tables[name]
        np.testing.assert_array_equal(again.values, store.values)
        np.testing.assert_array_equal(again.saved, store.saved)
    assert any(values(shard))


def test_a_shard_that_has_not_seen_it_all_acts_differently() -> None:
    """Or the comparison would compare nothing."""
    shard = DrivenShard(ME, EventRing(complete=True))
    live_through(shard, ASP)
    story = shard.story.entries()
    (failed,) = [entry for entry in story if isinstance(entry.event, LoadFailed)]
    differences = replay_shard(tuple(entry for entry in story if entry is not failed), Shard(ME))
    assert [type(one.event) for one in differences] == [ShardTick], "it loads nothing again"


def live_through(shard: DrivenShard, spec: Job) -> None:
    """Pushes, clocks, refusals, a round, an epoch that takes a block and gives one, ticks."""
    epoch = first_epoch(spec, {"w": ids(0, 2, 4)}, workers=2)
    load_initial(shard, spec, shard.adopt(epoch, spec))
    for rank in (0, 1):
        shard.settle(sender(rank), 1)
    for clock in range(3):
        for rank in (0, 1):
            shard.now += 0.1
            push(shard, rank, clock + 1, ids(0, 4), np.arange(4) + rank, clock=clock)
            shard.mark(sender(rank), 1, clock + 1, None)
        shard.handle(ShardTick(True))
    assert push(shard, 0, 3, ids(0), [7, 7], clock=2), "a duplicate"
    with pytest.raises(MustWait):
        shard.pull(sender(0), 1, 9, [("w", None)])
    with pytest.raises(NotServing):
        push(shard, 0, 4, ids(0), [1, 1], epoch=2)
    save_blocks(shard)
    after = next_epoch(epoch, {"w": ids(1)}, {"w": ids(4)}, [group("w", ids(1)), group("w", ids(4), ME)])
    (load,) = shard.adopt(after, spec)
    with pytest.raises(MustWait):
        push(shard, 1, 4, ids(1), [5, 6], clock=3)
    shard.handle(LoadFailed(load, "the store is away"))
    shard.now += 5
    shard.handle(ShardTick(True))
    shard.install(load, BlockContents(np.array([8, 9], np.float32)))
    for rank in (0, 1):
        shard.settle(sender(rank), 2)
        push(shard, rank, 4, ids(0, 1), np.ones(4), clock=3)
        shard.mark(sender(rank), 2, 4, None)
    assert worker(1).name in shard.awaited_workers


def save_blocks(shard: DrivenShard) -> None:
    """A round that commits one block."""
    candidates = shard.begin_round(1, 1, 0)
    for one in candidates:
        one.distances = block_distances(one.store)[one.positions]
    shard.measured(1, candidates)
    found = shard.candidates(1, 1)
    copied = shard.copy_round(1, 1, [(one.store, one.positions[:1]) for one in found])
    shard.uploaded(1, copied, "objects/1")
    assert shard.finish_round(1, True, object_key="objects/1")
