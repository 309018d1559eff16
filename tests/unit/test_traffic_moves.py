"""When a coordinator looks at the traffic of shards, and what it does then. Time is made up."""

from __future__ import annotations

import numpy as np
import pytest

from scar.placement import Epoch, concatenate_owners
from scar_recovery.core.actions import MoveBlocks, ReadTraffic
from scar_recovery.core.epoch_intent import FreezeAnswer, FrozenTransfer
from scar_recovery.core.events import BlocksMoved, EpochLoaded, MemberArrived, MemberLeft, TrafficRead
from scar_recovery.core.planner import Planner
from scar_recovery.core.settings import PlannerSettings
from scar_recovery.core.traffic_watch import REST, REST_MOST
from tests.framework.recovery import World, due, make_job, owned_counts
from tests.unit.planner_steps import commit, shard, started, worker
from tests.unit.test_hot_blocks import QUIET, first_epoch, skewed, traffic_of

EVERY = 10.0
NEVER = float("inf")
JOB = make_job(3)


def read(planner: Planner, now: float, uneven: bool) -> None:
    """The coordinator asks, and hears."""
    asked = due(planner, now)
    assert isinstance(asked, ReadTraffic)
    assert due(planner, now + 1) is None, "it asks once"
    epoch = planner.epoch
    assert epoch is not None
    assert asked == ReadTraffic(epoch.number, epoch.shards)
    told = traffic_of(epoch, skewed(epoch, 1, 8, JOB), JOB) if uneven else ()
    planner.handle(TrafficRead(epoch.number, tuple(told)), now)


def exchange(planner: Planner, now: float, loaded: float) -> Epoch:
    """Hot blocks change places."""
    move = due(planner, now)
    assert isinstance(move, MoveBlocks)
    done = tuple(FrozenTransfer(transfer, FreezeAnswer(9, {})) for transfer in move.transfers)
    planner.handle(BlocksMoved(move.number, done, True), now)
    epoch = commit(planner, now, "traffic")
    planner.handle(EpochLoaded(epoch.number), loaded)
    return epoch


def test_it_looks_again_and_again_and_moves_what_is_hot() -> None:
    planner = started(JOB, traffic_seconds=EVERY)
    assert due(planner, 1.0) is None
    assert planner.wake_after(1.0) == pytest.approx(EVERY - 1)
    read(planner, EVERY, uneven=False)
    assert due(planner, EVERY + 1) is None
    read(planner, 2 * EVERY, uneven=True)
    before = planner.epoch
    assert before is not None
    epoch = exchange(planner, 2 * EVERY, 2 * EVERY + 0.1)
    assert (owned_counts(epoch.owners, 3) == owned_counts(before.owners, 3)).all()
    assert (concatenate_owners(JOB, epoch.owners) != concatenate_owners(JOB, before.owners)).any()


def test_after_an_exchange_training_has_time_for_itself() -> None:
    planner = started(JOB, traffic_seconds=EVERY)
    read(planner, EVERY, uneven=True)
    exchange(planner, EVERY, EVERY + 2)
    assert due(planner, EVERY + 4) is None  # what shards hold is level
    assert planner.wake_after(EVERY + 4) == pytest.approx(2 * REST - 2)


def test_an_answer_about_an_older_epoch_is_not_used() -> None:
    planner = started(JOB, traffic_seconds=EVERY)
    epoch = planner.epoch
    assert epoch is not None
    assert isinstance(due(planner, EVERY), ReadTraffic)
    planner.handle(MemberArrived(worker("worker-0")), EVERY)
    commit(planner, EVERY + 1, "workers")
    planner.handle(EpochLoaded(2), EVERY + 1)
    told = traffic_of(epoch, skewed(epoch, 1, 8, JOB), JOB)
    planner.handle(TrafficRead(1, tuple(told)), EVERY + 2)
    assert due(planner, EVERY + 3) is None
    read(planner, 2 * EVERY + 1, uneven=False)


def test_an_answer_that_came_before_an_epoch_is_not_used_after_it() -> None:
    planner = started(JOB, traffic_seconds=EVERY)
    read(planner, EVERY, uneven=True)
    planner.handle(MemberArrived(worker("worker-0")), EVERY - 1)
    commit(planner, EVERY + 1, "workers")
    planner.handle(EpochLoaded(2), EVERY + 1)
    assert due(planner, EVERY + 2) is None


def test_shards_that_join_or_leave_come_first() -> None:
    planner = started(JOB, traffic_seconds=EVERY)
    planner.handle(MemberArrived(shard("ps-3")), EVERY)
    commit(planner, EVERY + 1, "join")
    planner.handle(EpochLoaded(2), EVERY + 1)
    assert isinstance(due(planner, EVERY + 1), MoveBlocks)
    alone = started(shards=1, traffic_seconds=EVERY)
    alone.handle(MemberLeft(shard("ps-0")), 1.0)
    assert due(alone, 2 * EVERY) is None
    assert alone.wake_after(2 * EVERY) == NEVER


@pytest.mark.parametrize("settings", [{}, {"traffic_seconds": EVERY, "rebalance": False}])
def test_it_can_be_told_not_to_look(settings: dict[str, float]) -> None:
    planner = started(JOB, **settings)
    assert due(planner, 10 * EVERY) is None
    assert planner.wake_after(10 * EVERY) == NEVER


def test_a_failed_exchange_is_an_epoch_and_is_tried_again_later() -> None:
    planner = started(JOB, traffic_seconds=EVERY)
    read(planner, EVERY, uneven=True)
    move = due(planner, EVERY)
    assert isinstance(move, MoveBlocks)
    planner.handle(BlocksMoved(move.number, (), False), EVERY)
    epoch = commit(planner, EVERY, "traffic")
    assert epoch.moved == ()
    planner.handle(EpochLoaded(2), EVERY)
    assert due(planner, EVERY + 5) is None
    read(planner, 2 * EVERY, uneven=True)


def test_exchanges_that_are_of_no_use_become_rare() -> None:
    planner, now, waits = started(JOB, traffic_seconds=EVERY), EVERY, []
    for _ in range(40):
        read(planner, now, uneven=True)
        exchange(planner, now, now)
        began = now
        now += EVERY
        read(planner, now, uneven=True)  # as if nothing had moved
        assert due(planner, now) is None
        now += planner.wake_after(now)
        waits.append(now - began - EVERY)
    assert waits[:4] == pytest.approx([2 * EVERY, 4 * EVERY, 8 * EVERY, 16 * EVERY])
    assert waits[-1] == pytest.approx(REST_MOST)


def test_what_became_level_is_looked_at_as_often_as_ever() -> None:
    planner = started(JOB, traffic_seconds=EVERY)
    read(planner, EVERY, uneven=True)
    exchange(planner, EVERY, EVERY)
    read(planner, 2 * EVERY, uneven=True)
    assert due(planner, 2 * EVERY) is None
    read(planner, 4 * EVERY, uneven=False)
    read(planner, 5 * EVERY, uneven=True)
    exchange(planner, 5 * EVERY, 5 * EVERY)
    read(planner, 6 * EVERY, uneven=True)
    assert planner.wake_after(6 * EVERY) == pytest.approx(2 * EVERY)


def busy_world() -> World:
    world = World(JOB, settings=PlannerSettings(move_bytes=400, traffic_seconds=EVERY))
    for number in range(3):
        world.start(f"ps-{number}")
    return world


def test_shards_that_answer_are_levelled_and_every_value_is_kept() -> None:
    world = busy_world()
    leader = world.lead("a")
    world.settle(leader, 1.0)
    for one in world.shards.values():
        one.values[one.values >= 0] = np.flatnonzero(one.values >= 0) + 1
    first = world.epochs()[-1]
    world.block_rates = skewed(first_epoch(JOB, 3), 1, 8, JOB) / 100
    assert world.block_rates.min() >= QUIET
    world.settle(leader, 100.0)
    epochs = world.epochs()[first.number :]
    assert {epoch.cause for epoch in epochs} == {"traffic"}
    assert (world.values() == np.arange(JOB.blocks) + 1).all()
    rates = [
        np.bincount(concatenate_owners(JOB, one.owners), world.block_rates, 3).max()
        for one in (first, epochs[-1])
    ]
    assert rates[1] < 0.8 * rates[0]
    count = len(epochs)
    world.settle(leader, 100.0)
    assert len(world.epochs()) == first.number + count, "what is level stays as it is"


def test_a_shard_that_does_not_answer_or_counts_nothing_leaves_everything_as_it_is() -> None:
    world = busy_world()
    leader = world.lead("a")
    world.settle(leader, 100.0)
    assert len(world.epochs()) == 1
