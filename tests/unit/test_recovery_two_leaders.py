"""Two recovery leaders, of which one was paused: what either of them was told stays in the ledger."""

from __future__ import annotations

from scar.placement import Member, Role
from scar.v1.recovery_pb2 import RerouteReport
from scar.wire import codec
from scar_recovery.executor import Executor
from scar_recovery.recovery_store import RecoveryStore
from tests.framework.lost import lost
from tests.framework.recovery import World, make_job


class WithWorkers(World):
    def is_serving(self, member: Member) -> bool:
        return member.role == Role.WORKER or super().is_serving(member)


def failed() -> tuple[WithWorkers, Executor, list[Member]]:
    """A leader whose epoch for a dead shard exists, and nothing more; two workers owe it reports."""
    world = WithWorkers(make_job(3))
    for name in ("ps-0", "ps-1", "ps-2"):
        world.start(name)
    leader = world.lead("a")
    workers = [world.member(f"worker-{number}", Role.WORKER) for number in range(2)]
    for worker in workers:
        leader.state.admit_member(worker)
    world.settle(leader)
    victim = next(shard for shard in world.shards.values() if shard.member.name == "ps-1")
    victim.running = False
    world.fail(leader, victim)
    while leader.state.epoch is None or leader.state.epoch.cause != "failure":
        leader.step()
        world.now += 0.01
    return world, leader, workers


def report(worker: Member, epoch: int) -> RerouteReport:
    return RerouteReport(epoch=epoch, worker=codec.member_to_proto(worker), lost=[lost("a", [1], 3, 9)])


def told(world: World) -> dict[int, tuple[list[str], list[str], int]]:
    """What a reader of the store finds: failure -> who has reported, who has not, pushes lost."""
    records = RecoveryStore(world.store, world.job).read_failures()
    return {
        one.number: (sorted(r.worker for r in one.reports), list(one.waiting), one.lost_pushes)
        for one in records
    }


def test_a_leader_that_wakes_up_overwrites_nothing() -> None:
    world, former, workers = failed()
    assert former.state.epoch is not None
    epoch = former.state.epoch.number
    heir = world.lead("b")
    world.settle(heir)
    for worker in workers:
        heir.ledger.accept_report(report(worker, epoch))
    heir.ledger.write()
    complete = {1: (sorted(worker.key for worker in workers), [], 12)}
    assert told(world) == complete
    former.ledger.write()
    assert told(world) == complete
    assert [len(one.lost) for one in RecoveryStore(world.store, world.job).read_lost_pushes(1)] == [1, 1]


def test_what_two_leaders_were_told_comes_together() -> None:
    world, former, workers = failed()
    world.settle(former)
    assert former.state.epoch is not None
    epoch = former.state.epoch.number
    heir = world.lead("b")
    former.ledger.accept_report(report(workers[0], epoch))  # acknowledged: no epoch of the heir exists yet
    former.ledger.write()
    assert former.leads()
    world.settle(heir)
    assert not former.leads()
    heir.ledger.accept_report(report(workers[1], epoch))
    heir.ledger.write()
    assert told(world) == {1: (sorted(worker.key for worker in workers), [], 12)}
    (record,) = heir.ledger.records
    assert not record.waiting, "the heir reads what was acknowledged before its first epoch"


def test_a_leader_whose_epochs_were_collected_does_not_lead() -> None:
    world, former, _ = failed()
    heir = world.lead("b")
    world.settle(heir)
    assert former.state.epoch is not None
    for number in range(1, former.state.epoch.number + 2):
        world.store.delete(f"test/epochs/{number:08d}")
    assert not former.leads()


def test_a_leader_that_nobody_asks_hears_of_its_successor() -> None:
    """As after an outage of Redis in which both of them led: members would learn old epochs from it."""
    world, former, _ = failed()
    former.maintain_store()
    assert not former.state.replaced_by
    world.settle(world.lead("b"))
    former.maintain_store()
    assert former.state.replaced_by == "b"


def test_a_new_leader_takes_no_blocks_from_a_shard_that_it_cannot_keep_from_working() -> None:
    """It may be the one that is cut off: from Redis, and from a shard whose heartbeats Redis hears."""
    world = World(make_job(3))
    for name in ("ps-0", "ps-1", "ps-2"):
        world.start(name)
    world.settle(world.lead("a"))
    victim = next(shard for shard in world.shards.values() if shard.member.name == "ps-1")
    victim.silent = True
    world.redis_away = True
    heir = world.lead("b")
    world.settle(heir)
    world.now += 60.0
    world.settle(heir)
    assert heir.state.epoch is not None
    assert heir.state.epoch.shard_index(victim.member.key) >= 0, "it may serve"
    world.redis_away = False
    blocked = world.now
    world.settle(heir)
    assert world.lease_blocks == [(victim.member.key, blocked)]
    assert heir.state.epoch.shard_index(victim.member.key) < 0
    assert world.now >= blocked + world.settings.lease, "its lease has run out by then"
