"""What pending deaths, moves and arrivals make of each other."""

from __future__ import annotations

from scar_recovery.core.actions import CommitEpoch, MoveBlocks
from scar_recovery.core.block_sources import NothingSaved
from scar_recovery.core.epoch_draft import draft_epoch
from scar_recovery.core.epoch_intent import FreezeAnswer, FrozenTransfer
from scar_recovery.core.events import BlocksMoved, EpochLoaded, MemberArrived, MemberHeard
from tests.framework.recovery import due
from tests.unit.planner_steps import commit, failed, shard, started


def test_a_death_voids_a_move_that_had_just_ended() -> None:
    """Its epoch would name a donor or a target that is gone; what is frozen there is lost or stays."""
    planner = started()
    planner.handle(MemberArrived(shard("ps-3")), 1.0)
    commit(planner, 1.1)
    planner.handle(EpochLoaded(2), 0.0)
    move = due(planner, 1.2)
    assert isinstance(move, MoveBlocks)
    planner.handle(
        BlocksMoved(
            2, tuple(FrozenTransfer(transfer, FreezeAnswer(9, {})) for transfer in move.transfers), True
        ),
        1.3,
    )
    failed(planner, shard("ps-3"), 1.3)
    epoch = commit(planner, 1.4, "failure")
    assert epoch.moved == ()
    assert [member.name for member in epoch.shards] == ["ps-0", "ps-1", "ps-2"]


def test_a_heartbeat_does_not_bring_the_proved_dead_back() -> None:
    planner = started()
    failed(planner, shard("ps-1"), 1.0)
    planner.handle(MemberHeard("ps-1@ps-1-1"), 1.01)
    assert [failure.key for failure in planner.members.proved_dead()] == ["ps-1@ps-1-1"]
    assert "ps-1-1" in commit(planner, 1.1, "failure").fenced


def test_survivors_open_clock_is_nobodys_business_but_theirs() -> None:
    """A shard that joins later must not begin with the clock of a checkpoint when others have served on."""

    class Saved(NothingSaved):
        manifest, clock = 7, 40  # type: ignore[assignment]

    planner = started()
    failed(planner, shard("ps-1"), 1.0)
    action = due(planner, 1.1)
    assert isinstance(action, CommitEpoch)
    assert draft_epoch(action.intent, Saved()).clock == 0


def test_where_all_who_served_are_dead_the_clock_is_that_of_the_checkpoint() -> None:
    """Though some have joined already who have none of their own; else rounds wait for what was before."""

    class Saved(NothingSaved):
        manifest, clock = 7, 40  # type: ignore[assignment]

    planner = started()
    planner.handle(MemberArrived(shard("ps-3")), 1.0)
    assert commit(planner, 1.1, "join").moved == ()
    for name in ("ps-0", "ps-1", "ps-2"):
        failed(planner, shard(name), 1.2)
    action = due(planner, 1.3)
    assert isinstance(action, CommitEpoch)
    assert [member.name for member in action.intent.shards] == ["ps-3"]
    assert draft_epoch(action.intent, Saved()).clock == 40
