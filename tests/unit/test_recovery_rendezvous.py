"""Workers of a run wait for each other; later nobody waits for one that is gone."""

from __future__ import annotations

import pytest

from scar.placement import Member, Role
from scar_recovery.core.events import FailureReport, JobEnded, MemberFailed, MemberLeft
from scar_recovery.executor import Executor
from tests.framework.recovery import World, make_job


class TwoWorkers(World):
    """Two shards and a job of two workers."""

    def __init__(self) -> None:
        super().__init__(make_job(2, workers=2))
        for name in ("ps-0", "ps-1"):
            self.start(name)

    def is_serving(self, member: Member) -> bool:
        return member.role == Role.WORKER or super().is_serving(member)

    def join(self, leader: Executor, name: str) -> Member:
        worker = self.member(name, Role.WORKER)
        leader.state.admit_member(worker)
        self.settle(leader)
        return worker

    def die(self, leader: Executor, worker: Member) -> None:
        leader.state.post(MemberFailed(FailureReport(worker, proved=True)))
        self.settle(leader)

    @property
    def waits(self) -> bool:
        """Whether a worker of the newest epoch waits for the other one."""
        return self.epochs()[-1].awaits_workers


@pytest.fixture
def world() -> TwoWorkers:
    return TwoWorkers()


def trained(world: TwoWorkers) -> tuple[Executor, Member, Member]:
    """A leader, and the two workers of a run that is under way."""
    leader = world.lead("a")
    return leader, world.join(leader, "worker-0"), world.join(leader, "worker-1")


def test_the_first_worker_waits_for_the_second(world: TwoWorkers) -> None:
    leader = world.lead("a")
    world.join(leader, "worker-0")
    assert world.waits
    world.join(leader, "worker-1")
    assert not world.waits


def test_nobody_waits_for_one_that_has_finished(world: TwoWorkers) -> None:
    leader, first, second = trained(world)
    leader.state.post(MemberLeft(first, finished=True))
    world.settle(leader)
    world.die(leader, second)
    world.join(leader, "worker-1")
    assert not world.waits


def test_workers_of_a_resumed_job_wait_for_each_other(world: TwoWorkers) -> None:
    """A new cluster goes on where another one stood still, its workers still in the newest epoch."""
    _, *former = trained(world)
    leader = world.lead("b", begins_run=True)
    for worker in former:
        world.die(leader, worker)
    world.join(leader, "worker-0")
    assert world.waits
    world.join(leader, "worker-1")
    assert not world.waits


def test_workers_of_the_run_before_are_not_counted(world: TwoWorkers) -> None:
    """The second one is not known to be dead yet when the first one returns."""
    _, first, second = trained(world)
    leader = world.lead("b", begins_run=True)
    world.die(leader, first)
    world.join(leader, "worker-0")
    assert world.waits
    world.die(leader, second)
    world.join(leader, "worker-1")
    assert not world.waits


def test_a_new_leader_knows_who_waits(world: TwoWorkers) -> None:
    leader = world.lead("a")
    world.join(leader, "worker-0")
    leader = world.lead("b")
    world.settle(leader)
    assert world.waits
    world.join(leader, "worker-1")
    assert not world.waits


def test_a_job_is_resumed_by_the_cluster_that_has_it(world: TwoWorkers) -> None:
    leader, first, second = trained(world)
    leader.state.begin_run()  # it is under way: nothing begins
    world.die(leader, second)
    second = world.join(leader, "worker-1")
    assert not world.waits
    for worker in (first, second):
        leader.state.post(MemberLeft(worker))
    world.settle(leader)
    leader.state.begin_run()
    world.join(leader, "worker-0")
    assert world.waits
    world.join(leader, "worker-1")
    assert not world.waits


def test_a_job_is_resumed_after_another_one(world: TwoWorkers) -> None:
    leader, first, second = trained(world)
    for worker in (first, second):
        leader.state.post(MemberLeft(worker))
    world.settle(leader)
    leader.state.post(JobEnded())
    world.settle(leader)
    for name in ("ps-0", "ps-1"):
        world.start(name)
    leader = world.lead("b")
    world.settle(leader)
    world.join(leader, "worker-0")
    assert world.waits
    world.join(leader, "worker-1")
    assert not world.waits
