"""What a strategy promises is held against the epochs and the ledger, and a breach is found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from scar.placement import BlockGroup, BlockSource, Epoch, Member, Role
from scar.tables import Checkpoint, Job, Table
from scar.v1.recovery_pb2 import FailureRecord
from scar.wire.lost_pushes import pack_losses
from scar_chaos.oracles.history import History, PullRecord, PushRecord
from scar_chaos.oracles.strategy_promises import check_promises
from scar_chaos.oracles.violation import Violation
from tests.framework.lost import loss

SHARDS = tuple(Member(Role.SHARD, f"ps-{number}", f"{number:012x}") for number in range(3))
WORKER = Member(Role.WORKER, "worker-0", "aaaaaaaaaaaa")
EVERY = np.arange(6, dtype=np.uint32)


def job(recovery: str, **options: Any) -> Job:
    policy = Checkpoint("full") if "checkpoint" in recovery or recovery == "full" else Checkpoint()
    fields: dict[str, Any] = {"checkpoint": policy, "shards": 3, **options}
    return Job("test", [Table("w", 6)], recovery=recovery, **fields)


def epoch(number: int, moved: Sequence[BlockGroup], rollback: bool = False) -> Epoch:
    owners = {"w": np.array([0, 0, 1, 1, 2, 2], np.uint16)}
    return Epoch(number, "r", "test", SHARDS, (WORKER,), owners, tuple(moved), rollback=rollback)


def group(ids: Sequence[int], source: BlockSource, clock: int = 0) -> BlockGroup:
    return BlockGroup(
        "w", np.array(ids, np.uint32), former_owner="ps-9@999999999999", source=source, clock=clock
    )


def history(first: int) -> History:
    return History(pulls=[PullRecord(WORKER.key, first, "w", 1, 1, np.zeros(6))])


def record(sources: dict[str, int], **fields: Any) -> FailureRecord:
    dead = SHARDS[1].key
    return FailureRecord(
        number=1, members=[dead], epoch=2, clock=20, lost_blocks=2, total_blocks=6, sources=sources, **fields
    )


START = epoch(1, [group(EVERY.tolist(), BlockSource.INITIAL)])


@pytest.mark.parametrize("recovery", ["full", "sync-checkpoint", "async-checkpoint"])
def test_a_rollback_takes_every_block(recovery: str) -> None:
    whole, part = [group(EVERY.tolist(), BlockSource.OBJECT)], [group([2, 3], BlockSource.OBJECT)]
    check_promises(job(recovery), [START, epoch(2, whole, rollback=True)], [record({"object": 6})], History())
    with pytest.raises(Violation, match="2 of 6 blocks"):
        check_promises(
            job(recovery), [START, epoch(2, part, rollback=True)], [record({"object": 2})], History()
        )
    with pytest.raises(Violation, match="rollback False"):
        check_promises(job(recovery), [START, epoch(2, part)], [record({"object": 2})], History())


@pytest.mark.parametrize("recovery", ["partial", "sync-chain", "async-chain"])
def test_others_take_no_more_than_was_lost(recovery: str) -> None:
    with pytest.raises(Violation, match="rollback True"):
        check_promises(job(recovery), [START, epoch(2, [], rollback=True)], [record({})], History())


@pytest.mark.parametrize(
    ("recovery", "sources", "first", "found"),
    [
        ("sync-chain", {"replica": 2}, 0, True),
        # it had gained blocks just before: nobody had followed yet
        ("sync-chain", {"replica": 2}, 19, False),
        ("sync-chain", {"replica": 1, "object": 1}, 0, False),  # the chain was not whole
        ("async-chain", {"replica": 2}, 0, False),
    ],
)
def test_a_whole_synchronous_chain_loses_nothing(
    recovery: str, sources: dict[str, int], first: int, found: bool
) -> None:
    epochs = [START, epoch(2, [group([2, 3], BlockSource.REPLICA, 20)])]
    arguments = (job(recovery), epochs, [record(sources, lost_pushes=1)], history(first))
    if found:
        with pytest.raises(Violation, match="1 acknowledged pushes are lost"):
            check_promises(*arguments)
    else:
        check_promises(*arguments)


@pytest.mark.parametrize(("number", "found"), [(3, False), (9, True)])
def test_what_was_pushed_to_blocks_just_gained_may_be_lost_however_late_that_is_noticed(
    number: int, found: bool
) -> None:
    """Simulated seed 5009: a worker went on for many clocks before the death was answered."""
    lost = record({"object": 2}, lost_pushes=1)
    lost.lost.add(worker=WORKER.key, lost=[pack_losses(loss("w", [2], number - 1, number))])
    events = history(1)
    events.pushes = [PushRecord(WORKER.key, clock, clock, "w", EVERY) for clock in range(20)]
    epochs = [START, epoch(2, [group([2, 3], BlockSource.OBJECT, 20)])]
    arguments = (
        job("stateless", consistency="asp", checkpoint=Checkpoint(fraction=1.0)),
        epochs,
        [lost],
        events,
    )
    if found:
        with pytest.raises(Violation, match="1 acknowledged pushes are lost"):
            check_promises(*arguments)
    else:
        check_promises(*arguments)


@pytest.mark.parametrize("recovery", ["stateless", "sync-chain"])
def test_what_had_waited_for_an_owner_may_be_lost_with_it_unless_nothing_waits(recovery: str) -> None:
    """Simulated seed 4772: what was pushed in clocks 1 to 3 is acknowledged by who gained the blocks in 9."""
    lost = record({"object": 2} if recovery == "stateless" else {"replica": 2}, lost_pushes=3)
    lost.lost.add(worker=WORKER.key, lost=[pack_losses(loss("w", [2], 0, 3))])
    events = history(9)
    events.pushes = [PushRecord(WORKER.key, clock, clock, "w", EVERY) for clock in range(20)]
    source = BlockSource.OBJECT if recovery == "stateless" else BlockSource.REPLICA
    epochs = [START, epoch(2, [group([2, 3], source, 20)])]
    if recovery == "stateless":
        spec = job(recovery, consistency="asp", checkpoint=Checkpoint(fraction=1.0))
        check_promises(spec, epochs, [lost], events)
    else:
        with pytest.raises(Violation, match="3 acknowledged pushes are lost"):
            check_promises(job(recovery), epochs, [lost], events)


@pytest.mark.parametrize(
    ("sources", "first", "damage", "found"),
    [
        ({"worker": 2}, 0, [], True),
        ({"worker": 1, "object": 1}, 0, [], False),  # no worker had it
        ({"worker": 2}, 19, [], False),  # the dead had gained blocks a moment before
        ({"worker": 2}, 0, ["2 blocks of w at ps-0"], False),
    ],
)
def test_workers_that_heal_a_shard_lose_nothing(
    sources: dict[str, int], first: int, damage: list[str], found: bool
) -> None:
    epochs = [START, epoch(2, [group([2, 3], BlockSource.WORKER, 20)])]
    lost = record(sources, lost_pushes=1, damage=damage)
    arguments = (job("partial", sources="workers"), epochs, [lost], history(first))
    if found:
        with pytest.raises(Violation, match="that workers healed"):
            check_promises(*arguments)
    else:
        check_promises(*arguments)


@pytest.mark.parametrize(
    ("sources", "first", "found"),
    [
        ({"worker": 1, "replica": 1}, 0, True),
        ({"replica": 2}, 0, True),
        ({"replica": 1, "object": 1}, 0, False),  # neither had it
        ({"worker": 1, "replica": 1}, 19, False),  # a worker had died a moment before
    ],
)
def test_workers_and_replicas_of_what_they_lack_lose_nothing(
    sources: dict[str, int], first: int, found: bool
) -> None:
    epochs = [START, epoch(2, [group([2, 3], BlockSource.REPLICA, 12)])]
    spec = job("partial", sources="workers", replicas=1, replicate="missing")
    arguments = (spec, epochs, [record(sources, lost_pushes=1)], history(first))
    if found:
        with pytest.raises(Violation, match="that workers healed"):
            check_promises(*arguments)
    else:
        check_promises(*arguments)


def test_what_somebody_has_damaged_may_be_lost() -> None:
    epochs = [START, epoch(2, [group([2, 3], BlockSource.REPLICA, 20)])]
    lost = record({"replica": 2}, lost_pushes=1, damage=["2 blocks of w at ps-0"])
    check_promises(job("sync-chain"), epochs, [lost], history(0))


def test_a_copy_is_no_older_than_the_period() -> None:
    epochs = [START, epoch(2, [group([2, 3], BlockSource.REPLICA, 12)])]
    check_promises(
        job("sync-chain", replica_period=10), epochs, [record({"replica": 2}, lost_pushes=9)], history(0)
    )
    with pytest.raises(Violation, match="8 clocks old"):
        check_promises(job("sync-chain", replica_period=5), epochs, [record({"replica": 2})], history(0))
