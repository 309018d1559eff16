"""The coordinator is killed at every step of a recovery, a join and a departure. Its successor leaves nothing undone."""

from collections.abc import Callable

import numpy as np
import pytest

from scar.placement import owned_counts
from scar_chaos.checkers import epochs_linear
from scar_recovery.executor import Executor
from scar_recovery.members import Report
from tests.framework.recovery import Killed, World, make_job

Fault = Callable[[World, Executor], None]


def kill_one(world: World, leader: Executor) -> None:
    victim = next(shard for shard in world.shards.values() if shard.member.name == "ps-1")
    victim.running = False
    world.fail(leader, victim)


def kill_all(world: World, leader: Executor) -> None:
    for shard in list(world.shards.values()):
        shard.running = False
        world.fail(leader, shard)
    world.settle(leader)
    for name in ("ps-0", "ps-1"):
        leader.planner.members.joined(world.start(name).member, world.now)


def restart_one(world: World, leader: Executor) -> None:
    leader.planner.members.joined(world.start("ps-1").member, world.now)


def add_one(world: World, leader: Executor) -> None:
    leader.planner.members.joined(world.start("ps-3").member, world.now)


def drain_one(world: World, leader: Executor) -> None:
    leader.planner.members.left(next(iter(world.shards.values())).member, world.now)


FAULTS: list[Fault] = [kill_one, kill_all, restart_one, add_one, drain_one]


def trained(recovery: str = "partial") -> tuple[World, Executor]:
    """Three shards in epoch 1, loaded, every block with a value of its own."""
    options = {} if recovery == "partial" else {"recovery": "full", "checkpoint": full_checkpoint()}
    world = World(make_job(3, **options))
    for name in ("ps-0", "ps-1", "ps-2"):
        world.start(name)
    leader = world.lead("a")
    world.settle(leader)
    for shard in world.shards.values():
        shard.values[shard.values >= 0] = np.flatnonzero(shard.values >= 0) + 1
    return world, leader


def full_checkpoint() -> object:
    from scar.tables import Checkpoint

    return Checkpoint(selection="full")


def killed_at(fault: Fault, step: int, after: bool, recovery: str) -> tuple[World, Executor, bool]:
    world, first = trained(recovery)
    world.fuse.steps, world.fuse.at, world.fuse.after = 0, step, after
    try:
        fault(world, first)
        world.settle(first)
    except Killed:
        pass
    killed = world.fuse.burnt
    world.fuse.at, world.fuse.burnt = 0, False
    return world, first, killed


def wake_up(world: World, leader: Executor) -> None:
    """A leader that was paused goes on, and hears of a death that it wants to repair."""
    assert leader.planner.epoch is not None
    for member in leader.planner.epoch.shards[:1]:
        leader.planner.members.failed(Report(member, proved=True), world.now)
    leader.planner.members.joined(world.member("ps-9"), world.now)
    world.settle(leader)


@pytest.mark.parametrize("recovery", ["partial", "full"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_successor_finishes_whatever_was_begun(fault: Fault, after: bool, recovery: str) -> None:
    step, killed = 0, True
    while killed:
        step += 1
        world, first, killed = killed_at(fault, step, after, recovery)
        second = world.lead("b")
        if not world.present():
            second.planner.members.joined(world.start("ps-0").member, world.now)
        world.settle(second)
        values = world.values()
        epochs = world.epochs()
        epochs_linear(world.job, epochs)
        moves_only = fault in (add_one, drain_one)
        assert not moves_only or bool((values == np.arange(world.job.blocks) + 1).all()), "a live move changed a value"
        assert not moves_only or not any(epoch.rollback for epoch in epochs)
        wake_up(world, first)
        assert first.deposed == "b"
        assert world.epochs()[-1].number == epochs[-1].number
    assert step > 3


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_ends_balanced_and_booked(fault: Fault) -> None:
    world, leader = trained()
    fault(world, leader)
    world.settle(leader)
    values, newest = world.values(), world.epochs()[-1]
    counts = owned_counts(newest.owners, len(newest.shards))
    assert int(counts.max() - counts.min()) <= 1
    lost = sum(record.lost_blocks for record in leader.ledger.records)
    assert int((values == 0).sum()) == lost
    written = leader.archive.failures()
    assert [record.number for record in written] == [record.number for record in leader.ledger.records]
    assert all(record.epoch for record in written)


def test_ledger_of_a_leader_that_died_before_writing_is_rebuilt() -> None:
    world, first = trained()
    kill_one(world, first)
    while first.planner.epoch is None or first.planner.epoch.number == 1:
        world.now += 0.01
        first.step()
    assert first.archive.failures() == []
    second = world.lead("b")
    world.settle(second)
    (record,) = second.archive.failures()
    assert [member.split("@")[0] for member in record.members] == ["ps-1"]
    assert record.epoch == 2
    assert record.lost_blocks == 20


def test_waits_for_the_store_and_says_so() -> None:
    world, leader = trained()
    world.store.down = True
    kill_one(world, leader)
    world.now += 0.05
    for _ in range(5):
        leader.step()
        world.now += 0.2
    assert "waits for the store" in leader.planner.waits_for
    assert leader.planner.recovering
    world.store.down = False
    world.settle(leader)
    assert leader.planner.waits_for == ""
    assert int((world.values() == 0).sum()) == 20


def test_lost_answer_to_a_create_is_found_again() -> None:
    world, leader = trained()
    kill_one(world, leader)
    create = leader.archive.create_epoch

    def lost(epoch):  # type: ignore[no-untyped-def]
        from scar.errors import StoreUnavailable

        create(epoch)
        leader.archive.create_epoch = create  # type: ignore[method-assign]
        raise StoreUnavailable("the answer was lost")

    leader.archive.create_epoch = lost  # type: ignore[method-assign]
    world.settle(leader)
    assert not leader.deposed
    assert [epoch.cause for epoch in world.epochs()] == ["start", "failure"]
    assert [record.epoch for record in leader.ledger.records] == [2]
    world.values()


def test_second_failure_during_recovery_is_covered_by_the_next_epoch() -> None:
    world, leader = trained()
    kill_one(world, leader)
    world.now += 0.04
    leader.step()
    kill = next(shard for shard in world.shards.values() if shard.member.name == "ps-2")
    kill.running = False
    world.fail(leader, kill)
    world.settle(leader)
    newest = world.epochs()[-1]
    assert [member.name for member in newest.shards] == ["ps-0"]
    assert [record.epoch for record in leader.ledger.records] == [2, 3]
    world.values()


def test_failure_aborts_a_move() -> None:
    world, leader = trained()
    add_one(world, leader)
    leader._background = lambda work: None  # the move hangs
    world.settle(leader, 0.5)
    frozen_in = leader.planner.epoch
    assert frozen_in is not None
    kill_one(world, leader)
    leader._background = lambda work: work()
    world.settle(leader)
    leader.planner.moved(frozen_in.number, [], True, world.now)  # its late end is of no interest
    assert leader.planner.tick(world.now) is None
    epochs_linear(world.job, world.epochs())
    world.values()
