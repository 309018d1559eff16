"""Pushes to lost blocks, of a clock that their new owner has closed: no clock more than workers have done.
docs/protocol.md §3, §5.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import scar
from scar._client.core.clocks import ShardRecord
from scar._client.core.push_state import EpochSettled, MarkTaken, PushAcked, PushState
from scar._client.core.pushes import TablePush
from scar.placement import BlockGroup, BlockSource, Epoch, Member, Role

JOB = scar.Job("owed", [scar.Table("w", (4, 2))], consistency="bsp")
SHARDS = tuple(Member(Role.SHARD, f"ps-{n}", f"{n:012x}", f"127.0.0.1:{n}") for n in range(2))
SURVIVOR, DEAD = (shard.key for shard in SHARDS)
ME = Member(Role.WORKER, "worker-0", "0123456789ab")
FIRST = Epoch(1, "a", JOB.name, SHARDS, (ME,), {"w": np.array([0, 0, 1, 1], np.uint16)})
LOST = BlockGroup("w", np.array([2, 3], np.uint32), former_owner=DEAD, source=BlockSource.INITIAL)
SECOND = replace(
    FIRST, number=2, shards=SHARDS[:1], owners={"w": np.zeros(4, np.uint16)}, moved=(LOST,), cause="failure"
)


@pytest.fixture
def state() -> PushState:
    """The job's only clock is done, and closed at the survivor; the other shard died before it closed it."""
    state = PushState(JOB, ME.key)
    state.follow_epoch(FIRST, {}, 1.0)
    for key in (SURVIVOR, DEAD):
        state.handle(key, EpochSettled(1, ShardRecord()), 1.0)
    state.resume_clocks(FIRST)
    blocks = {"w": TablePush(np.array([2], np.uint32), np.ones(2, np.float32))}
    state.add_push(FIRST, {DEAD: blocks}, 1 << 20)
    assert state.streams[DEAD].buffer.next_push() is not None
    state.handle(DEAD, PushAcked(1, 0), 2.0)
    state.clocks.finish_clock(FIRST, None)
    state.handle(SURVIVOR, MarkTaken(1, 1, 1), 3.0)
    state.follow_epoch(SECOND, {}, 4.0)
    resent = state.streams[SURVIVOR].buffer.next_push()
    assert resent is not None
    assert resent.resent
    return state


def test_no_clock_is_finished_for_what_is_owed(state: PushState) -> None:
    state.handle(SURVIVOR, PushAcked(1, 1, 1, owed=True), 5.0)
    assert not state.finish_joined_clocks()
    assert state.clocks.finished == 1


def test_who_ends_waits_until_what_is_owed_is_applied(state: PushState) -> None:
    state.handle(SURVIVOR, PushAcked(1, 1, 1, owed=True), 5.0)
    state.handle(SURVIVOR, MarkTaken(2, 1, 1, settled=False), 6.0)
    assert not state.is_drained()
    state.handle(SURVIVOR, MarkTaken(2, 1, 1, settled=True), 7.0)
    assert state.is_drained()


def test_a_shard_that_does_not_say_owed_applies_it_with_its_open_clock(state: PushState) -> None:
    """As one of an older version does."""
    state.handle(SURVIVOR, PushAcked(1, 1, 1), 5.0)
    state.handle(SURVIVOR, MarkTaken(2, 1, 1, settled=True), 6.0)
    assert not state.is_drained()
    assert state.finish_joined_clocks()
    assert state.clocks.finished == 2
