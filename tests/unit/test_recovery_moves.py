"""Blocks that move while training goes on: to a shard that joins, from one that leaves. Time is made up."""

import pytest

from scar.blocks import BlockState
from scar.placement import BlockSource, Epoch
from scar_recovery.core.actions import MoveBlocks
from scar_recovery.core.epoch_intent import FreezeAnswer, FrozenTransfer
from scar_recovery.core.events import (
    BlocksMoved,
    EpochLoaded,
    MemberArrived,
    MemberLeft,
)
from scar_recovery.core.live_moves import REST_MOST
from scar_recovery.core.planner import Planner
from tests.framework.recovery import due, owned_counts
from tests.unit.planner_steps import commit, shard, started, worker


def finish_slice(planner: Planner, move: MoveBlocks, now: float, loaded: float) -> Epoch:
    """All of it has moved by ``now``, and is served everywhere at ``loaded``."""
    done = tuple(FrozenTransfer(transfer, FreezeAnswer(9, {"w@1": 4})) for transfer in move.transfers)
    planner.handle(BlocksMoved(move.number, done, True), now)
    epoch = commit(planner, now)
    planner.handle(EpochLoaded(epoch.number), loaded)
    return epoch


def finish_moves(planner: Planner, now: float) -> list[Epoch]:
    """Carry out moves until there are none."""
    created = []
    while isinstance(move := due(planner, now), MoveBlocks):
        created.append(finish_slice(planner, move, now, 0.0))
        assert len(created) < 100
    assert move is None
    return created


def test_blocks_that_contain_more_say_so_in_the_epoch() -> None:
    planner = started(move_bytes=40)
    planner.handle(MemberArrived(shard("ps-3")), 1.0)
    commit(planner, 1.1, "join")
    planner.handle(EpochLoaded(2), 0.0)
    move = due(planner, 1.2)
    assert isinstance(move, MoveBlocks)
    [(table, moving)] = move.transfers[0].blocks.items()
    ahead = BlockState(table, moving[:1], 9, {"w@1": 7})
    answer = FreezeAnswer(9, {"w@1": 4}, (ahead,))
    done = tuple(FrozenTransfer(transfer, answer) for transfer in move.transfers)
    planner.handle(BlocksMoved(move.number, done, True), 1.2)
    epoch = commit(planner, 1.2)
    contained = {
        (group.table, int(block)): group.watermark["w@1"] for group in epoch.moved for block in group.ids
    }
    assert contained.pop((table, int(moving[0]))) == 7
    assert set(contained.values()) == {4}
    assert len(contained) == sum(len(ids) for one in move.transfers for ids in one.blocks.values()) - 1


def test_join_moves_blocks_in_slices_until_level() -> None:
    planner = started(move_bytes=40)
    planner.handle(MemberArrived(shard("ps-3")), 1.0)
    assert commit(planner, 1.1, "join").moved == ()
    planner.handle(EpochLoaded(2), 0.0)
    epochs = finish_moves(planner, 1.2)
    assert len(epochs) > 2
    assert {epoch.cause for epoch in epochs} == {"join"}
    counts = owned_counts(epochs[-1].owners, 4)
    assert int(counts.max() - counts.min()) <= 1
    groups = [group for epoch in epochs for group in epoch.moved]
    assert {group.source for group in groups} == {BlockSource.DONOR}
    assert {group.clock for group in groups} == {9}
    assert all(group.watermark == {"w@1": 4} for group in groups)
    assert epochs[-1].clock == 9


def move_slice(planner: Planner, begun: float, loaded: float) -> None:
    move = due(planner, begun)
    assert isinstance(move, MoveBlocks)
    finish_slice(planner, move, begun, loaded)


def joined() -> Planner:
    """A fourth shard has come, and has no blocks yet."""
    planner = started(move_bytes=40)
    planner.handle(MemberArrived(shard("ps-3")), 1.0)
    assert commit(planner, 1.1, "join").moved == ()
    planner.handle(EpochLoaded(2), 1.2)
    return planner


def test_between_slices_training_has_as_long_for_itself_as_it_waited() -> None:
    planner = joined()
    move_slice(planner, 1.2, 1.7)
    assert due(planner, 2.1) is None
    assert planner.wake_after(2.1) == pytest.approx(0.1)
    move_slice(planner, 2.2, 2.4)
    assert due(planner, 2.5) is None
    planner.handle(MemberLeft(shard("ps-1")), 2.5)
    move_slice(planner, 2.5, 2.9)
    assert isinstance(due(planner, 2.9), MoveBlocks), "who leaves may have little time"


def test_a_slice_that_waited_long_for_the_store_does_not_put_off_the_next_as_long() -> None:
    planner = joined()
    move_slice(planner, 1.2, 181.2)
    assert planner.wake_after(181.2) == pytest.approx(REST_MOST)
    assert isinstance(due(planner, 191.3), MoveBlocks)


def test_leaving_shard_gives_everything_and_is_left_out_with_its_last_block() -> None:
    planner = started(rebalance=False)
    planner.handle(MemberLeft(shard("ps-1")), 1.0)
    assert planner.owned_blocks("ps-1@ps-1-1") == 20
    epochs = finish_moves(planner, 1.0)
    assert {epoch.cause for epoch in epochs} == {"leave"}
    assert [member.name for member in epochs[-1].shards] == ["ps-0", "ps-2"]
    assert owned_counts(epochs[-1].owners, 2).tolist() == [30, 30]
    assert planner.owned_blocks("ps-1@ps-1-1") == 0
    assert epochs[-1].fenced == ()


def test_nobody_to_give_to() -> None:
    planner = started(shards=1)
    planner.handle(MemberLeft(shard("ps-0")), 1.0)
    assert due(planner, 5.0) is None
    assert planner.owned_blocks("ps-0@ps-0-1") == 60


def test_a_leaving_shard_that_still_owns_blocks_is_in_every_epoch() -> None:
    planner = started(shards=1)
    planner.handle(MemberLeft(shard("ps-0")), 1.0)
    planner.handle(MemberArrived(worker("worker-0")), 2.0)
    assert [member.name for member in commit(planner, 2.1, "workers").shards] == ["ps-0"]
    assert planner.owned_blocks("ps-0@ps-0-1") == 60


def test_failed_move_ends_its_freeze_by_an_epoch_and_is_tried_later() -> None:
    planner = started()
    planner.handle(MemberArrived(shard("ps-3")), 1.0)
    commit(planner, 1.1)
    planner.handle(EpochLoaded(2), 0.0)
    assert isinstance(due(planner, 1.1), MoveBlocks)
    planner.handle(MemberArrived(worker("worker-0")), 1.1)
    assert due(planner, 1.5) is None  # workers wait for the end of a move, not the other way round
    planner.handle(BlocksMoved(2, (), False), 1.5)
    epoch = commit(planner, 1.5, "join")
    assert epoch.moved == ()
    assert [member.name for member in epoch.workers] == ["worker-0"]
    planner.handle(EpochLoaded(3), 0.0)
    assert due(planner, 1.6) is None
    assert isinstance(due(planner, 2.6), MoveBlocks)


def test_moves_that_never_work_are_tried_less_and_less_often() -> None:
    planner, now, waits = started(), 1.0, []
    planner.handle(MemberArrived(shard("ps-3")), now)
    commit(planner, now + 0.1)
    for number in range(2, 10):
        planner.handle(EpochLoaded(number), 0.0)
        wait = planner.wake_after(now)
        waits.append(round(wait, 1))
        now += wait
        assert isinstance(due(planner, now), MoveBlocks)
        planner.handle(BlocksMoved(number, (), False), now)
        commit(planner, now, "join")
    assert waits[1:] == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0]
