"""What a worker's core remembers for people who wonder why it waits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import scar
from scar._client.core.clocks import ShardRecord
from scar._client.core.push_state import EpochSettled, MarkTaken, PushAcked, PushState, StepFailed
from scar._client.core.pushes import TablePush
from scar.event_log import describe_fields, name_of
from scar.placement import BlockGroup, BlockSource, Epoch, Member, Role
from tests.framework.stories import holds_array

JOB = scar.Job("story", [scar.Table("w", (4, 2))], consistency="asp")
SHARDS = tuple(Member(Role.SHARD, f"ps-{n}", f"{n:012x}", f"127.0.0.1:{n}") for n in range(2))
ME = Member(Role.WORKER, "worker-0", "0123456789ab")
FIRST = Epoch(1, "a", JOB.name, SHARDS, (ME,), {"w": np.array([0, 0, 1, 1], np.uint16)})
LOST = BlockGroup("w", np.array([2, 3], np.uint32), former_owner=SHARDS[1].key, source=BlockSource.INITIAL)
SECOND = replace(
    FIRST, number=2, shards=SHARDS[:1], owners={"w": np.zeros(4, np.uint16)}, moved=(LOST,), cause="failure"
)


def train_until(failures: int) -> PushState:
    """An epoch, ten pushes, a shard that does not answer, and the epoch without it."""
    state = PushState(JOB, ME.key)
    state.follow_epoch(FIRST, {}, 1.0)
    for shard in SHARDS:
        state.handle(shard.key, EpochSettled(1, ShardRecord()), 2.0)
    state.resume_clocks(FIRST)
    blocks = {"w": TablePush(np.array([0], np.uint32), np.ones(2, np.float32))}
    for number in range(1, 11):
        state.add_push(FIRST, {SHARDS[0].key: blocks}, 1 << 20)
        assert state.streams[SHARDS[0].key].buffer.next_push() is not None
        state.handle(SHARDS[0].key, PushAcked(number, number), 3.0)
    for _ in range(failures):
        state.handle(SHARDS[1].key, StepFailed("the connection was closed"), 4.0)
    state.follow_epoch(SECOND, {}, 9.0)
    return state


def test_a_story_says_which_epochs_were_followed_and_who_refused() -> None:
    state = train_until(failures=50)
    entries = state.story.entries()
    kinds = [name_of(entry.event) for entry in entries]
    assert kinds == ["EpochFollowed", "EpochSettled", "EpochSettled", "StepFailed", "EpochFollowed"]
    refused, lost = entries[3], entries[4]
    assert (refused.event, refused.facts) == (StepFailed("the connection was closed"), {"shard": "ps-1"})
    assert refused.skipped == {"PushAcked": 10}
    assert lost.skipped == {"StepFailed": 49}, "the same again is only counted"
    assert ("cause", "failure") in describe_fields(lost.event)
    assert ("closed", f"[{SHARDS[1].key}]") in describe_fields(lost.actions[0])
    assert not any(map(holds_array, entries))


def test_what_goes_well_costs_no_entry() -> None:
    state = train_until(failures=0)
    known = len(state.story.entries())
    for mark in range(1000):
        state.handle(SHARDS[0].key, MarkTaken(2, mark, mark), 10.0)
    assert len(state.story.entries()) == known


def test_a_worker_begins_with_what_shards_say_in_the_newest_epoch() -> None:
    """Blocks that move tell a shard of clocks: what it said before is not all that it knows."""
    state = PushState(JOB, ME.key)
    state.follow_epoch(FIRST, {}, 1.0)
    for shard in SHARDS:
        state.handle(shard.key, EpochSettled(1, ShardRecord()), 2.0)
    assert state.is_introduced(FIRST)
    state.follow_epoch(SECOND, {}, 3.0)
    assert not state.is_introduced(SECOND)
    state.handle(SHARDS[0].key, EpochSettled(2, ShardRecord(finished=4)), 4.0)
    assert state.is_introduced(SECOND)
    state.resume_clocks(SECOND)
    assert state.clocks.finished == 4
