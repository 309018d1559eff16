"""The death of a worker stands in the ledger, like that of a shard."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from scar.placement import Member, Role
from scar_recovery.core.events import FailureReport, MemberFailed, MemberLeft
from scar_recovery.executor import Executor
from tests.framework.recovery import World, make_job


class WithWorkers(World):
    def is_serving(self, member: Member) -> bool:
        return member.role == Role.WORKER or super().is_serving(member)


def trained(**options: object) -> tuple[WithWorkers, Executor, Mapping[str, Member]]:
    """Three shards and two workers in one epoch."""
    world = WithWorkers(make_job(3, **options))
    for name in ("ps-0", "ps-1", "ps-2"):
        world.start(name)
    leader = world.lead("a")
    workers = {name: world.member(name, Role.WORKER) for name in ("worker-0", "worker-1")}
    for worker in workers.values():
        leader.state.admit_member(worker)
    world.settle(leader)
    return world, leader, workers


def die(world: World, leader: Executor, worker: Member) -> None:
    report = FailureReport(
        worker, proved=True, silence=0.2, detect_seconds=0.3, evidence="its process is gone"
    )
    leader.state.post(MemberFailed(report))


@pytest.mark.parametrize("strategy", ["ignr", "ps"])
def test_it_has_a_record_of_its_own(strategy: str) -> None:
    world, leader, workers = trained(worker_recovery=strategy)
    next(iter(world.shards.values())).clock = 20
    die(world, leader, workers["worker-1"])
    world.settle(leader)
    leader.ledger.write()
    (record,) = leader.store.read_failures()
    assert list(record.members) == [workers["worker-1"].key]
    assert list(record.evidence) == ["its process is gone"]
    assert (record.epoch, record.strategy) == (world.epochs()[-1].number, strategy)
    assert (record.lost_blocks, record.lost_pushes, dict(record.sources)) == (0, 0, {})
    assert (record.detect_seconds, record.clock) == (0.3, 20)
    assert not record.waiting, "nothing was put back, so nobody has anything to report"
    assert record.load_seconds > 0, "shards that were faster than the ledger count, too"
    assert not leader.ledger.loading


def test_one_that_dies_twice_has_two() -> None:
    """The second life is found dead because a third one takes its place."""
    world, leader, workers = trained()
    die(world, leader, workers["worker-1"])
    second = world.member("worker-1", Role.WORKER)
    leader.state.admit_member(second)
    world.settle(leader)
    third = world.member("worker-1", Role.WORKER)
    leader.state.admit_member(third)
    world.settle(leader)
    records = leader.ledger.records
    assert [list(record.members) for record in records] == [[workers["worker-1"].key], [second.key]]
    assert "has taken its place" in records[1].evidence[0]
    assert [record.detect_seconds for record in records] == [0.3, -1], "nobody had noticed its silence"


def test_one_that_leaves_has_none() -> None:
    world, leader, workers = trained()
    leader.state.post(MemberLeft(workers["worker-1"]))
    world.settle(leader)
    assert [member.name for member in world.epochs()[-1].workers] == ["worker-0"]
    assert leader.ledger.records == []


def test_one_that_dies_with_a_shard_stands_in_its_record() -> None:
    world, leader, workers = trained()
    victim = next(shard for shard in world.shards.values() if shard.member.name == "ps-1")
    victim.running = False
    world.fail(leader, victim)
    die(world, leader, workers["worker-1"])
    world.settle(leader)
    (record,) = leader.ledger.records
    assert set(record.members) == {victim.member.key, workers["worker-1"].key}
    assert (record.strategy, record.lost_blocks) == ("partial", 20)


def test_one_that_dies_while_blocks_wait_for_a_shard() -> None:
    world, leader, workers = trained()
    for shard in world.shards.values():
        shard.running = False
        world.fail(leader, shard)
    world.settle(leader)
    die(world, leader, workers["worker-1"])
    world.settle(leader)
    for name in ("ps-0", "ps-1", "ps-2"):
        leader.state.admit_member(world.start(name).member)
    world.settle(leader)
    world.values()
    shards, worker = leader.ledger.records
    assert (shards.lost_blocks, len(shards.members)) == (60, 3)
    assert list(worker.members) == [workers["worker-1"].key]
    assert shards.epoch > worker.epoch > 0


def test_a_later_leader_tells_it_from_the_epochs() -> None:
    """The first one died before it wrote; one of the workers that are gone had left by itself."""
    world, leader, workers = trained()
    leader.state.post(MemberLeft(workers["worker-0"]))
    die(world, leader, workers["worker-1"])
    while leader.state.epoch is None or leader.state.epoch.workers:
        leader.step()
        world.now += 0.01
    heir = world.lead("b")
    (record,) = heir.ledger.records
    assert list(record.members) == [workers["worker-1"].key]
    assert (record.lost_blocks, record.strategy) == (0, "ignr")
    assert record.epoch
