"""A job is finished when its last state is durable: never before, and in the end always, whoever dies on
the way.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest

from scar.errors import NotServing
from scar.losses import LossPoint
from scar.placement import Member, Role
from scar.v1.checkpoint_pb2 import Manifest
from scar_recovery.core.events import FailureReport, MemberFailed, MemberLeft
from scar_recovery.executor import Executor
from scar_recovery.job_finisher import JobFinisher
from scar_recovery.recovery_store import RecoveryStore
from scar_runtime.store.layout import MANIFESTS, numbered
from scar_runtime.store.records import create_record, newest
from tests.framework.recovery import Killed, MemoryStore, World


class Round:
    """Rounds of every block. ``full``: nobody missed it."""

    def __init__(self, world: World, full: bool = True) -> None:
        self._world, self.full, self.problem = world, full, ""

    def __call__(self, job: str) -> int:
        if self.problem:
            raise NotServing(self.problem)
        store = self._world.store.under(job)
        number = newest(store, MANIFESTS) + 1
        create_record(
            store,
            numbered(MANIFESTS, number),
            Manifest(number=number, job=job, clock=9, epoch=3, full=self.full),
        )
        return number


def finisher(leader: Executor, save: Callable[[str], int]) -> JobFinisher:
    """Between any two of its looks at the clock more time passes than it ever waits."""
    losses = {7: LossPoint(7, 0.5), 8: LossPoint(8, 0.25, 0.75)}
    clock = count(0.0, 60.0)
    return JobFinisher(lambda: leader, save, lambda _shard: losses, lambda: 1.0, lambda: next(clock))


def working(workers: int = 2) -> tuple[World, Executor, list[Member]]:
    """Three shards and some workers, which are in an epoch."""
    world = World()
    for name in ("ps-0", "ps-1", "ps-2"):
        world.start(name)
    leader = world.lead("a")
    members = [world.member(f"worker-{number}", Role.WORKER) for number in range(workers)]
    world.settle(leader)
    for member in members:
        leader.state.admit_member(member)
    world.settle(leader)
    return world, leader, members


def leave(world: World, leader: Executor, *members: Member, finished: bool = True) -> None:
    for member in members:
        leader.state.post(MemberLeft(member, finished))
    world.settle(leader)


def finished(world: World) -> int:
    return world.epochs()[-1].finished


def durable(world: World) -> bool:
    """The record, and the full manifest that it names."""
    archive = RecoveryStore(MemoryStore(world.store.objects), world.job)
    record = archive.read_finished(finished(world))
    return record is not None and archive.read_manifest(record.manifest).full


def test_the_last_worker_that_leaves_with_its_work_done_finishes_the_job() -> None:
    world, leader, (one, two) = working()
    leave(world, leader, one)
    assert finished(world) == 0
    leave(world, leader, two)
    assert finished(world) == world.epochs()[-1].number


def test_a_job_is_not_finished_by_workers_that_stop_or_die() -> None:
    world, leader, (one, two) = working()
    leave(world, leader, one)
    leave(world, leader, two, finished=False)
    assert (world.epochs()[-1].workers, finished(world)) == ((), 0)
    world, leader, (one, two) = working()
    leader.state.post(MemberFailed(FailureReport(two, proved=True)))
    leave(world, leader, one, two)
    assert (world.epochs()[-1].workers, finished(world)) == ((), 0)


def test_it_stays_finished_whatever_becomes_of_shards_until_somebody_works_again() -> None:
    world, leader, workers = working()
    leave(world, leader, *workers)
    number = finished(world)
    victim = next(iter(world.shards.values()))
    victim.running = False
    world.fail(leader, victim)
    world.settle(leader)
    assert world.epochs()[-1].number > number == finished(world)
    second = world.lead("b")
    world.settle(second)
    assert finished(world) == number
    again = world.member("worker-0", Role.WORKER)
    second.state.admit_member(again)
    world.settle(second)
    assert finished(world) == 0
    leave(world, second, again)
    assert finished(world) > number


def test_nothing_is_finished_before_every_block_is_durable() -> None:
    world, leader, workers = working()
    save = Round(world, full=False)
    ending = finisher(leader, save)
    assert ending.step()  # nothing to do while they work
    leave(world, leader, *workers)
    assert ending.record is None
    assert not ending.step()
    assert (ending.record, durable(world)) == (None, False)
    assert "manifest 1 has not every block" in ending.problem
    save.problem = "the store is away"
    assert not ending.step()
    assert "is not saved yet: the store is away" in ending.problem
    save.full, save.problem = True, ""
    assert ending.step()
    record = ending.record
    assert record is not None
    assert (record.number, record.manifest, record.clock, record.epoch) == (finished(world), 2, 9, 3)
    assert (record.loss, record.loss_fraction) == (0.25, 0.75)
    assert (ending.problem, durable(world)) == ("", True)


def test_without_a_shard_nothing_can_be_saved() -> None:
    world, leader, workers = working()
    leave(world, leader, *workers)
    for shard in list(world.shards.values()):
        shard.running = False
        world.fail(leader, shard)
    world.settle(leader)
    ending = finisher(leader, Round(world))
    assert not ending.step()
    assert "no shard is left" in ending.problem


def test_a_second_end_has_a_record_of_its_own() -> None:
    world, leader, workers = working()
    leave(world, leader, *workers)
    ending = finisher(leader, Round(world))
    assert ending.step()
    again = world.member("worker-0", Role.WORKER)
    leader.state.admit_member(again)
    world.settle(leader)
    assert ending.record is None
    leave(world, leader, again)
    assert ending.record is None
    assert ending.step()
    assert ending.record is not None
    assert ending.record.manifest == 2


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_leader_that_dies_at_any_step_of_the_end_leaves_it_to_its_successor(after: bool) -> None:
    step, killed = 0, True
    while killed:
        step += 1
        world, first, workers = working()
        world.fuse.steps, world.fuse.at, world.fuse.after = 0, step, after
        try:
            leave(world, first, *workers)
            while not finisher(first, Round(world)).step():
                pass
        except Killed:
            pass
        killed, world.fuse.at, world.fuse.burnt = world.fuse.burnt, 0, False
        second = world.lead("b")
        for member in workers:  # they were not told that it is durable, so they say it again
            if world.epochs()[-1].workers:
                second.state.post(MemberLeft(member, True))
        world.settle(second)
        ending = finisher(second, Round(world))
        assert (ending.record is None) or durable(world)
        assert ending.step()
        assert ending.record is not None
        assert durable(world)
    assert step > 4
