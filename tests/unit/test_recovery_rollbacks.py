"""Workers ask for a rollback: once for all, with whatever else has to be repaired, and not for ever."""

from __future__ import annotations

import pytest

from scar.errors import Diverged, InvalidRequest, NotServing
from scar.placement import BlockSource, Epoch, Member, Role, global_ids
from scar_recovery.core.actions import CommitEpoch, MoveBlocks
from scar_recovery.core.block_sources import NothingSaved
from scar_recovery.core.epoch_draft import draft_epoch
from scar_recovery.core.epoch_intent import FreezeAnswer, FrozenTransfer, RollbackRequest
from scar_recovery.core.events import (
    BlocksMoved,
    EpochCommitted,
    EpochLoaded,
    MemberArrived,
    RollbackAsked,
    RollbackFailed,
)
from scar_recovery.core.pending_rollback import ROLLBACK_CLOCKS, ROLLBACKS, may_roll_back
from scar_recovery.core.planner import Planner
from scar_recovery.executor import Executor
from scar_runtime.checkpoint.manifest import Manifest
from scar_runtime.checkpoint.manifest_codec import create_manifest
from scar_runtime.store.layout import manifest_key
from tests.framework.recovery import World, due, make_job
from tests.unit.planner_steps import commit, failed, shard, started

OPEN = 7  # clock of the shards of a World


def asked(planner: Planner, clock: int, now: float) -> None:
    planner.handle(RollbackAsked(RollbackRequest(clock, 3, f"the loss of clock {clock} is nan")), now)


def rolled_back(planner: Planner, now: float) -> tuple[CommitEpoch, Epoch]:
    action = due(planner, now)
    assert isinstance(action, CommitEpoch)
    epoch = draft_epoch(action.intent, NothingSaved())
    planner.handle(EpochCommitted(epoch), now)
    return action, epoch


def moved_blocks(planner: Planner, epoch: Epoch) -> list[int]:
    assert planner.job is not None
    groups = (global_ids(planner.job, group.table, group.ids).tolist() for group in epoch.moved)
    return sorted(block for ids in groups for block in ids)


def test_everything_goes_back_and_all_workers_restart_with_one_clock() -> None:
    planner = started()
    asked(planner, 40, 10.0)
    action, epoch = rolled_back(planner, 10.1)
    assert (epoch.rollback, epoch.cause, epoch.failure, epoch.restart) == (True, "failure", 1, 43)
    assert moved_blocks(planner, epoch) == list(range(60))
    assert {group.source for group in epoch.moved} == {BlockSource.INITIAL}
    assert action.intent.asked == RollbackRequest(40, 3, "the loss of clock 40 is nan")
    assert due(planner, 10.2) is None


def test_workers_that_ask_because_of_one_clock_get_one_rollback() -> None:
    planner = started()
    asked(planner, 40, 10.0)
    asked(planner, 41, 10.01)
    asked(planner, 40, 10.02)
    action, _ = rolled_back(planner, 10.1)
    assert action.intent.asked is not None
    assert action.intent.asked.clock == 40
    for late in (40, 41, 42):
        asked(planner, late, 10.2)
    assert due(planner, 10.3) is None, "a loss of a model that exists no more"
    asked(planner, 43, 10.4)
    _, epoch = rolled_back(planner, 10.5)
    assert (epoch.failure, epoch.restart) == (2, 46)


def test_a_shard_that_dies_is_repaired_by_the_same_epoch() -> None:
    planner = started()
    asked(planner, 40, 10.0)
    failed(planner, shard("ps-0"), 10.01)
    action, epoch = rolled_back(planner, 10.1)
    assert [failure.key for failure in action.failures] == ["ps-0@ps-0-1"]
    assert (epoch.rollback, len(epoch.shards)) == (True, 2)
    assert moved_blocks(planner, epoch) == list(range(60))


def test_without_a_shard_it_waits_for_one() -> None:
    planner = started()
    for number in range(3):
        failed(planner, shard(f"ps-{number}"), 10.0)
    asked(planner, 40, 10.0)
    _, empty = rolled_back(planner, 10.1)
    assert (empty.shards, empty.rollback, empty.restart) == ((), False, 0)
    assert due(planner, 20.0) is None
    for number in range(3):
        planner.handle(MemberArrived(shard(f"ps-{number}", "2")), 21.0)
    _, epoch = rolled_back(planner, 22.0)
    assert (epoch.rollback, len(epoch.shards), epoch.restart) == (True, 3, 43)
    assert moved_blocks(planner, epoch) == list(range(60))


def test_a_move_that_has_just_ended_is_void() -> None:
    planner = started()
    planner.handle(MemberArrived(shard("ps-3")), 1.0)
    commit(planner, 1.1, "join")
    planner.handle(EpochLoaded(2), 1.2)
    moves = due(planner, 3.0)
    assert isinstance(moves, MoveBlocks)
    done = tuple(FrozenTransfer(one, FreezeAnswer(7, {})) for one in moves.transfers)
    planner.handle(BlocksMoved(2, done, True), 3.1)
    asked(planner, 40, 3.1)
    action, epoch = rolled_back(planner, 3.2)
    assert action.intent.moved == ()
    assert {group.source for group in epoch.moved} == {BlockSource.INITIAL}


def test_one_that_cannot_be_done_is_dropped() -> None:
    planner = started()
    asked(planner, 40, 10.0)
    planner.handle(RollbackFailed(40), 10.1)
    assert due(planner, 10.2) is None
    asked(planner, 40, 10.3)
    assert rolled_back(planner, 10.4)[1].rollback


def test_how_often_a_job_may_go_back() -> None:
    clocks = [100 * number for number in range(ROLLBACKS)]
    assert may_roll_back(500, clocks[1:])
    assert not may_roll_back(500, clocks)
    assert may_roll_back(clocks[0] + ROLLBACK_CLOCKS, clocks), "the first is long ago"


# --- the desk, over a store and shards


def trained() -> tuple[World, Executor, Member]:
    world = World(make_job(3))
    for name in ("ps-0", "ps-1", "ps-2"):
        world.start(name)
    leader = world.lead("a")
    member = world.member("worker-0", Role.WORKER)
    leader.state.admit_member(member)
    world.settle(leader)
    return world, leader, member


def test_it_goes_into_the_ledger_and_seals_what_it_goes_back_to() -> None:
    world, leader, member = trained()
    create_manifest(world.store.under("test"), Manifest(1, job="test", round=1))
    leader.rollbacks.accept_request(member, OPEN, "the loss of clock 7 is nan")
    leader.rollbacks.accept_request(member, OPEN, "the loss of clock 7 is nan")
    world.settle(leader)
    leader.rollbacks.accept_request(member, OPEN, "the loss of clock 7 is nan")
    world.settle(leader)
    leader.ledger.write()
    (record,) = leader.store.read_failures()
    assert (record.strategy, list(record.members), record.lost_blocks) == ("rollback", [], 0)
    assert record.rollback == "the loss of clock 7 is nan, says worker-0"
    assert (record.clock, record.restored_clock, record.epoch) == (OPEN, 0, world.epochs()[-1].number)
    assert dict(record.sources) == {"initial": 60}
    assert world.epochs()[-1].restart == OPEN + 3
    copy = leader.store.read_manifest(2)
    assert (copy.parent, copy.author) == (1, "a"), "no round that is under way can be committed"


def test_a_later_leader_knows_that_it_was_a_rollback() -> None:
    world, leader, member = trained()
    leader.rollbacks.accept_request(member, OPEN, "the loss of clock 7 is nan")
    world.settle(leader)  # the ledger is not written before it dies
    for key in [key for key in world.store.objects if "/ledger/" in key]:
        del world.store.objects[key]
    next_leader = world.lead("b")
    world.settle(next_leader)
    record = next_leader.ledger.records[0]  # the next is of the worker, which is no process here
    assert (record.strategy, record.rollback) == ("rollback", "recorded by a later leader")
    with pytest.raises(NotServing):
        trained_without_shards().rollbacks.accept_request(member, 1, "")


def trained_without_shards() -> Executor:
    return World(make_job(3)).lead("a")


def test_it_is_refused_when_it_has_been_too_often() -> None:
    world, leader, member = trained()
    for _ in range(ROLLBACKS):
        clock = max(shard.clock for shard in world.shards.values())
        leader.rollbacks.accept_request(member, clock, "nan")
        world.settle(leader)
        for one in world.shards.values():
            one.clock = world.epochs()[-1].restart
    with pytest.raises(Diverged, match="has gone back 3 times in 1000 clocks"):
        leader.rollbacks.accept_request(member, world.epochs()[-1].restart, "nan")


def test_a_clock_that_nobody_can_have_heard_of_is_refused() -> None:
    world, leader, member = trained()
    with pytest.raises(InvalidRequest, match="has heard of clock 1000, but 7 is open"):
        leader.rollbacks.accept_request(member, 1000, "nan")
    for one in world.shards.values():
        one.silent = True
    with pytest.raises(NotServing):
        leader.rollbacks.accept_request(member, OPEN, "nan")


def test_what_is_collected_in_between_is_looked_for_again() -> None:
    world, leader, member = trained()
    store = world.store.under("test")
    create_manifest(store, Manifest(1, job="test", round=1))
    create_manifest(store, Manifest(2, job="test", round=2))
    leader.rollbacks.accept_request(member, OPEN, "nan")
    store.delete(manifest_key(2))
    world.settle(leader, seconds=1.0)
    assert not world.epochs()[-1].rollback
    leader.rollbacks.accept_request(member, OPEN, "nan")
    world.settle(leader)
    assert world.epochs()[-1].rollback
