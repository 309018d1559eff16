"""Where lost blocks come back from when other shards keep copies of them: the freshest source wins, block
by block.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from scar.blocks import BlockState, Ids
from scar.placement import BlockSource, Member, Role, by_table, concatenate_owners
from scar.tables import Job, Table
from scar_recovery.core.block_sources import ReplicaCopy, SavedGroup, WorkerOffer, find_sources
from scar_recovery.core.epoch_preparation import SURVIVOR_SECONDS
from tests.framework.recovery import FakeShard, World, make_job

JOB = Job("test", [Table("w", 6)], shards=3, recovery="sync-chain")
HOLDER, OTHER = (Member(Role.SHARD, f"ps-{number}", f"{number:012x}") for number in (1, 2))
WORKERS = tuple(Member(Role.WORKER, f"worker-{number}", f"{number:012x}") for number in range(2))
LOST = {"ps-0@000000000000": np.arange(6)}


class Saved:
    """Blocks 0 to 3 in one object, at clock 5; of each worker 50 pushes."""

    manifest, clock, passed_over = 1, 5, False

    def saved_groups(self, table: str, ids: Ids, /) -> Sequence[SavedGroup]:
        inside = ids < 4
        return [
            SavedGroup(
                BlockState(table, ids[inside], 5, {worker.key: 50 for worker in WORKERS}), "objects/x"
            ),
            SavedGroup(BlockState(table, ids[~inside])),
        ]


def copy(
    blocks: list[int], pushes: int, clock: int = 5, holder: Member = HOLDER, worker: int = 0
) -> ReplicaCopy:
    watermark = {one.key: 50 for one in WORKERS} | {WORKERS[worker].key: pushes}
    return ReplicaCopy(holder, BlockState("w", np.array(blocks, np.uint32), clock, watermark))


def found(*copies: ReplicaCopy) -> dict[int, str]:
    """Block -> source, with the holder of a copy."""
    groups = find_sources(JOB, LOST, Saved(), WORKERS, copies)
    named = {
        int(block): f"{group.source.name} {holder.name}" if holder else group.source.name
        for holder, group in groups
        for block in group.ids
    }
    assert len(named) == sum(len(group.ids) for _, group in groups), "a block comes back twice"
    return dict(sorted(named.items()))


def test_a_copy_with_more_pushes_wins_and_one_with_fewer_loses() -> None:
    assert found(copy([0, 4], 60), copy([1, 5], 40)) == {
        0: "REPLICA ps-1",
        1: "OBJECT",
        2: "OBJECT",
        3: "OBJECT",
        4: "REPLICA ps-1",
        5: "REPLICA ps-1",
    }


def test_of_two_copies_the_fresher_one_wins() -> None:
    one, two = copy([0, 1], 60), copy([1, 2], 61, holder=OTHER)
    for copies in ((one, two), (two, one)):
        kept = found(*copies)
        assert [kept[block] for block in (0, 1, 2)] == ["REPLICA ps-1", "REPLICA ps-2", "REPLICA ps-2"]


def test_between_equals_the_clock_decides_and_then_memory_is_nearer_than_the_store() -> None:
    assert found(copy([0], 50, clock=4), copy([1], 50, clock=5), copy([2], 50, clock=6))[0] == "OBJECT"
    assert found(copy([1], 50, clock=5))[1] == "REPLICA ps-1"


def test_pushes_of_workers_that_left_do_not_count() -> None:
    watermark = {"worker-9@9": 10_000} | {one.key: 49 for one in WORKERS}
    stranger = ReplicaCopy(HOLDER, BlockState("w", np.array([0], np.uint32), 4, watermark))
    assert found(stranger)[0] == "OBJECT"


# --- what workers pulled last
# ----------------------------------------------------------------------------------------------


def offer(blocks: list[int], pushes: int, clock: int, worker: int = 0) -> WorkerOffer:
    watermark = {one.key: pushes for one in WORKERS}
    return WorkerOffer(WORKERS[worker], BlockState("w", np.array(blocks, np.uint32), clock, watermark))


def offered(*offers: WorkerOffer) -> dict[int, str]:
    """Block -> source, with the worker that sends it."""
    groups = [group for _, group in find_sources(JOB, LOST, Saved(), WORKERS, (), offers)]
    named = {
        int(block): f"{group.source.name} {group.sender.partition('@')[0]}".strip()
        for group in groups
        for block in group.ids
    }
    assert len(named) == sum(len(group.ids) for group in groups), "a block comes back twice"
    return dict(sorted(named.items()))


def test_what_a_worker_pulled_later_than_the_checkpoint_wins_and_of_equals_too() -> None:
    assert offered(offer([0, 4], 51, 6), offer([1, 5], 40, 4)) == {
        0: "WORKER worker-0",
        1: "OBJECT",
        2: "OBJECT",
        3: "OBJECT",
        4: "WORKER worker-0",
        5: "WORKER worker-0",
    }
    assert offered(offer([0], 50, 5))[0] == "WORKER worker-0"


def test_of_two_workers_the_one_a_clock_ahead_sends() -> None:
    one, two = offer([0, 1, 2, 3, 4, 5], 60, 6), offer([0, 1, 2, 3, 4, 5], 70, 7, worker=1)
    for offers in ((one, two), (two, one)):
        assert set(offered(*offers).values()) == {"WORKER worker-1"}


def test_workers_that_hold_the_same_send_a_part_each() -> None:
    sent = offered(*(offer([0, 1, 2, 3, 4, 5], 60, 6, worker=number) for number in range(2)))
    assert list(sent.values()).count("WORKER worker-0") == 3
    assert list(sent.values()).count("WORKER worker-1") == 3
    uneven = offered(offer([0, 1, 2, 3], 60, 6), offer([2, 3, 4, 5], 60, 6, worker=1))
    assert all(name.startswith("WORKER") for name in uneven.values())


# --- with a coordinator
# ----------------------------------------------------------------------------------------------


def chained() -> tuple[World, FakeShard, FakeShard]:
    """A cluster that runs; a shard that dies, and a survivor that keeps copies of all of its blocks."""
    world = World(make_job(3, recovery="sync-chain"))
    victim, holder, _ = (world.start(name) for name in ("ps-0", "ps-1", "ps-2"))
    return world, victim, holder


def kept_of(world: World, victim: FakeShard, holder: FakeShard) -> list[ReplicaCopy]:
    lost = by_table(world.job, np.flatnonzero(victim.values >= 0))
    return [ReplicaCopy(holder.member, BlockState(table, ids, 7)) for table, ids in lost.items()]


def test_the_shard_that_has_the_copies_takes_over() -> None:
    world, victim, holder = chained()
    leader = world.lead("a")
    world.settle(leader)
    world.copies = kept_of(world, victim, holder)
    lost = np.flatnonzero(victim.values >= 0)
    victim.running = False
    world.fail(leader, victim)
    world.settle(leader)
    epoch = next(one for one in world.epochs() if one.cause == "failure")
    assert {group.source for group in epoch.moved} == {BlockSource.REPLICA}
    assert (concatenate_owners(world.job, epoch.owners)[lost] == epoch.shard_index(holder.member.key)).all()
    assert (epoch.manifest, epoch.rollback) == (0, False)
    assert dict(leader.ledger.records[0].sources) == {"replica": len(lost)}
    world.values()


@pytest.mark.parametrize("returns", [True, False])
def test_a_survivor_that_does_not_answer_is_waited_for(returns: bool) -> None:
    """Its copies may be the only ones; forever it is not waited for."""
    world, victim, holder = chained()
    leader = world.lead("a")
    world.settle(leader)
    world.copies = kept_of(world, victim, holder)
    victim.running, holder.silent = False, True
    world.fail(leader, victim)
    world.settle(leader, SURVIVOR_SECONDS / 2)
    assert "did not say what it keeps" in leader.state.problem
    assert not any(epoch.cause == "failure" for epoch in world.epochs())
    holder.silent = not returns
    world.settle(leader, 2 * SURVIVOR_SECONDS)
    epoch = next(one for one in world.epochs() if one.cause == "failure")
    assert {group.source for group in epoch.moved} == (
        {BlockSource.REPLICA} if returns else {BlockSource.INITIAL}
    )


def test_more_pushes_count_more_than_a_later_clock() -> None:
    """In ASP clocks say little: a copy may be of an older clock and contain more."""
    assert found(copy([0], 60, clock=4), copy([0], 55, clock=9, holder=OTHER))[0] == "REPLICA ps-1"
