"""The coordinator is killed at every step of a recovery, a join, a departure and an exchange of hot blocks.
Its successor leaves nothing undone.
"""

from collections.abc import Callable

import numpy as np
import pytest

from scar.blocks import BlockState
from scar.placement import BlockSource, Role, concatenate_owners
from scar_chaos.oracles.checkers import epochs_linear
from scar_recovery.core.events import BlocksMoved, FailureReport, MemberFailed, MemberLeft
from scar_recovery.core.settings import PlannerSettings
from scar_recovery.executor import COLLECT, Executor
from scar_recovery.shard_client import UnreadableBlocks
from scar_runtime.checkpoint.manifest import Manifest
from scar_runtime.checkpoint.manifest_codec import create_manifest
from scar_runtime.checkpoint.objects import BlockPayload, EncodedObject, object_ref
from tests.framework.recovery import Killed, World, make_job, owned_counts

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
        leader.state.admit_member(world.start(name).member)


def restart_one(world: World, leader: Executor) -> None:
    leader.state.admit_member(world.start("ps-1").member)


def add_one(world: World, leader: Executor) -> None:
    leader.state.admit_member(world.start("ps-3").member)


def drain_one(world: World, leader: Executor) -> None:
    leader.state.post(MemberLeft(next(iter(world.shards.values())).member))


def heat_one(world: World, leader: Executor) -> None:
    epoch = leader.state.epoch
    assert epoch is not None
    world.block_rates = np.full(world.job.blocks, float(PlannerSettings().traffic_bytes))
    world.block_rates[np.flatnonzero(concatenate_owners(world.job, epoch.owners) == 1)[:8]] *= 10


FAULTS: list[Fault] = [kill_one, kill_all, restart_one, add_one, drain_one, heat_one]
MOVES = (add_one, drain_one, heat_one)


def trained(recovery: str = "partial", traffic_seconds: float = 0.0) -> tuple[World, Executor]:
    """Three shards in epoch 1, loaded, every block with a value of its own."""
    options = {} if recovery == "partial" else {"recovery": "full", "checkpoint": full_checkpoint()}
    settings = PlannerSettings(move_bytes=400, traffic_seconds=traffic_seconds)
    world = World(make_job(3, **options), settings=settings)
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
    world, first = trained(recovery, 5.0 if fault is heat_one else 0.0)
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
    assert leader.state.epoch is not None
    for member in leader.state.epoch.shards[:1]:
        leader.state.post(MemberFailed(FailureReport(member, proved=True)))
    leader.state.admit_member(world.member("ps-9"))
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
            second.state.admit_member(world.start("ps-0").member)
        world.settle(second)
        values = world.values()
        epochs = world.epochs()
        epochs_linear(world.job, epochs)
        moves_only = fault in MOVES
        assert not moves_only or bool((values == np.arange(world.job.blocks) + 1).all()), (
            "a live move changed a value"
        )
        assert not moves_only or not any(epoch.rollback for epoch in epochs)
        wake_up(world, first)
        assert first.state.replaced_by == "b"
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
    written = leader.store.read_failures()
    assert [record.number for record in written] == [record.number for record in leader.ledger.records]
    assert all(record.epoch for record in written)


def test_ledger_of_a_leader_that_died_before_writing_is_rebuilt() -> None:
    world, first = trained()
    kill_one(world, first)
    while first.state.epoch is None or first.state.epoch.number == 1:
        world.now += 0.01
        first.step()
    assert first.store.read_failures() == []
    second = world.lead("b")
    world.settle(second)
    (record,) = second.store.read_failures()
    assert [member.split("@")[0] for member in record.members] == ["ps-1"]
    assert record.epoch == 2
    assert record.lost_blocks == 20


@pytest.mark.parametrize("recovery", ["partial", "full"])
def test_what_a_shard_cannot_load_comes_from_elsewhere_and_is_booked(recovery: str) -> None:
    world, leader = trained(recovery)
    kill_one(world, leader)
    world.settle(leader)
    number = world.epochs()[-1].number
    owner = world.epochs()[-1].shards[0]
    ids = world.epochs()[-1].owned("a", 0)[:2]
    found = [UnreadableBlocks("a", ids, 7, "objects/x", "objects/x does not exist")]
    leader.blocks_unreadable(number - 1, owner, found)
    world.settle(leader)
    assert world.epochs()[-1].number == number, "of a former epoch"
    leader.blocks_unreadable(number, owner, found)
    world.settle(leader)
    epoch = world.epochs()[-1]
    assert (epoch.number, epoch.failure, epoch.rollback) == (number + 1, 2, recovery == "full")
    back = sum(len(group.ids) for group in epoch.moved)
    assert back == (world.job.blocks if recovery == "full" else 2)
    (record,) = [record for record in leader.store.read_failures() if record.number == 2]
    assert record.damage == [f"2 blocks at {owner.name}: objects/x does not exist"]
    assert (list(record.members), record.epoch) == ([], epoch.number)
    assert record.lost_blocks == (0 if recovery == "full" else 2), "of a rollback it is no part of its own"
    assert dict(record.sources) == {"initial": back}


@pytest.mark.parametrize("manifest", [0, 1])
def test_what_a_worker_does_not_send_comes_from_the_checkpoint_and_is_booked(manifest: int) -> None:
    """It is in no object, so nobody else can read it either."""
    world, leader = trained()
    before = world.epochs()[-1]
    ids = before.owned("a", 0)[:2]
    silent = "worker-0@1 has not sent them for 5 s"
    leader.blocks_unreadable(
        before.number, before.shards[0], [UnreadableBlocks("a", ids, manifest, "", silent)]
    )
    world.settle(leader)
    epoch = world.epochs()[-1]
    assert (epoch.number, epoch.cause) == (before.number + 1, "failure")
    assert {(group.source, group.former_owner) for group in epoch.moved} == {(BlockSource.INITIAL, "")}
    (record,) = leader.store.read_failures()
    assert record.damage == [f"2 blocks at {before.shards[0].name}: {silent}"]


def test_what_only_one_shard_cannot_read_is_no_damage() -> None:
    world, leader = trained()
    store, ids = world.store.under("test"), np.arange(2, dtype=np.uint32)
    group = BlockState("c", ids, 1, {}, "ps-9@1")
    encoded = EncodedObject(world.job, [(group, BlockPayload(np.ones(2, "f4"), {}, np.zeros(2, np.int64)))])
    store.put_pieces("objects/x", encoded.pieces())
    ref = object_ref("objects/x", encoded, [group], "ps-9@1", 1, 1)
    create_manifest(store, Manifest(number=1, job="test", objects=(ref,)))
    number = world.epochs()[-1].number
    leader.blocks_unreadable(
        number, world.epochs()[-1].shards[0], [UnreadableBlocks("c", ids, 1, "objects/x", "its own disk")]
    )
    world.settle(leader)
    assert world.epochs()[-1].number == number


def test_waits_for_the_store_and_says_so() -> None:
    world, leader = trained()
    world.store.down = True
    kill_one(world, leader)
    world.now += 0.05
    for _ in range(5):
        leader.step()
        world.now += 0.2
    assert "waits for the store" in leader.state.waits_for
    assert leader.state.recovering
    world.store.down = False
    world.settle(leader)
    assert leader.state.waits_for == ""
    assert int((world.values() == 0).sum()) == 20


def test_lost_answer_to_a_create_is_found_again() -> None:
    world, leader = trained()
    kill_one(world, leader)
    create = leader.store.create_epoch

    def lost(epoch):  # type: ignore[no-untyped-def]
        from scar.errors import StoreUnavailable

        create(epoch)
        leader.store.create_epoch = create  # type: ignore[method-assign]
        raise StoreUnavailable("the answer was lost")

    leader.store.create_epoch = lost  # type: ignore[method-assign]
    world.settle(leader)
    assert not leader.state.replaced_by
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
    frozen_in = leader.state.epoch
    assert frozen_in is not None
    kill_one(world, leader)
    leader._background = lambda work: work()
    world.settle(leader)
    # its late end is of no interest
    leader.state.post(BlocksMoved(frozen_in.number, (), True))
    assert not leader.step()
    epochs_linear(world.job, world.epochs())
    world.values()


def test_epochs_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("EPOCHS_LEAST", "EPOCHS_MOST"):
        monkeypatch.setattr(f"scar_recovery.recovery_store.{name}", 4)
    world, leader = trained()
    for number in range(30):
        leader.state.admit_member(world.member(f"worker-{number}", Role.WORKER))
        world.settle(leader)
    assert leader.state.epoch is not None
    assert leader.state.epoch.number > 30
    assert len(world.store.list("test/epochs/")) < 4 + COLLECT
    heir = world.lead("b")
    world.settle(heir)
    assert heir.state.epoch is not None
    assert heir.state.epoch.number > leader.state.epoch.number, "what is kept is enough to take over"
