"""A ledger that says something else than what happened is found out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from scar.placement import END, BlockGroup, BlockSource, Epoch, Member, Role
from scar.tables import Job, Table
from scar.v1.recovery_pb2 import FailureRecord
from scar_chaos.oracles.history import History, PullRecord, ReturnedBlocks
from scar_chaos.oracles.ledger_audit import audit_ledger
from scar_chaos.oracles.violation import Violation

SHARDS = tuple(Member(Role.SHARD, f"ps-{number}", f"{number:012x}") for number in range(3))
WORKERS = tuple(Member(Role.WORKER, f"worker-{number}", f"{number:012x}") for number in range(2))
IDS = np.array([2, 3], np.uint32)
JOB = Job("test", [Table("w", (6, 2))], consistency="bsp", shards=3)
GROUP = BlockGroup(
    "w", IDS, former_owner=SHARDS[1].key, source=BlockSource.OBJECT, object_key="objects/x", clock=8
)
BACK = np.array([20, 30])  # what came back, as it was at clock 8
NORM = float(np.sqrt(2 * (7**2 + 9**2)))  # two elements a block


def epoch(
    number: int, shards: tuple[Member, ...], owners: list[int], moved: tuple[BlockGroup, ...] = ()
) -> Epoch:
    return Epoch(number, "r", "test", shards, WORKERS, {"w": np.array(owners, np.uint16)}, moved)


EPOCHS = [
    epoch(1, SHARDS, [0, 0, 1, 1, 2, 2]),
    epoch(2, (SHARDS[0], SHARDS[2]), [0, 0, 0, 1, 1, 1], (GROUP,)),
]


def pull(worker: Member, clock: int, before: int, after: int, second: int, third: int) -> PullRecord:
    return PullRecord(worker.key, clock, "w", before, after, np.array([0, 0, second, third, 0, 0]))


def history() -> History:
    """Both saw clock 8 as it was saved; before the epoch one had pulled clock 11, the other clock 12."""
    return History(
        pulls=[
            pull(WORKERS[0], 8, 1, 1, 20, 30),
            pull(WORKERS[0], 12, 1, 1, 27, 39),
            pull(WORKERS[1], 11, 1, 1, 21, 31),
            pull(WORKERS[1], 12, 1, 2, 20, 30),
        ]
    )


def record(**fields: Any) -> FailureRecord:
    said: dict[str, Any] = {
        "number": 1, "members": [SHARDS[1].key], "epoch": 2, "clock": 12, "lost_blocks": 2, "total_blocks": 6,
        "sources": {"object": 2}, "delta_norm": NORM, "delta_exact": True,
    }  # fmt: skip
    return FailureRecord(**said | fields)


def audit(entry: FailureRecord, job: Job = JOB, back: np.ndarray = BACK) -> None:
    for check in audit_ledger(job, EPOCHS, [entry], history(), [ReturnedBlocks(2, GROUP, back)]):
        check()


def test_what_is_true_is_accepted() -> None:
    audit(record())
    audit(record(delta_norm=float(np.sqrt(2 * (1 + 1)))))  # the other worker's comparison counted
    audit(record(delta_norm=0.0))  # its pull ended in the moment in which it followed


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"waiting": [WORKERS[0].key]}, "still waits for the report of worker-0"),
        ({"epoch": 0}, "no epoch that repaired it"),
        ({"lost_blocks": 3}, "3 blocks lost, and ps-1@000000000001 owned 2"),
        ({"members": [SHARDS[0].key, SHARDS[1].key]}, "owned 4"),
        ({"sources": {"object": 1, "initial": 1}}, "sources"),
        ({"clock": 11}, "clock 12 was open before its epoch"),
        ({"delta_norm": NORM * 1.001}, "recorded values make it"),
        ({"delta_norm": NORM / np.sqrt(2)}, "recorded values make it"),
    ],
)
def test_what_is_false_is_found(wrong: dict[str, Any], complaint: str) -> None:
    with pytest.raises(Violation, match=complaint):
        audit(record(**wrong))


def test_an_object_that_is_not_of_its_clock_is_found() -> None:
    with pytest.raises(Violation, match=r"blocks \[3\] of table w are not those of clock 8"):
        audit(record(delta_exact=False), back=np.array([20, 31]))


def test_what_is_only_about_right_is_not_compared() -> None:
    audit(record(delta_norm=1.0, delta_exact=False))
    audit(record(clock=11), replace(JOB, consistency="asp"))
    audit(record(clock=11, delta_exact=False), replace(JOB, consistency="ssp", staleness=1))


NUMBERED = {"failure": 3, "workers": 3, "leader": 0, "join": 0}  # cause -> failure that such an epoch is of


@pytest.mark.parametrize("between", [[], *([cause] for cause in NUMBERED)])
def test_survivors_that_were_dead_themselves_cannot_tell_the_clock(between: list[str]) -> None:
    """All died at once, a worker, too, and were found one after the other, while others took their places:
    what served at last had gone back to what was saved.
    """
    still = [
        replace(EPOCHS[-1], number=number, moved=(), cause=cause, failure=NUMBERED[cause])
        for number, cause in enumerate(between, 3)
    ]
    after = replace(EPOCHS[-1], number=3 + len(between), shards=(), moved=(), cause="failure", failure=9)
    for check in audit_ledger(
        JOB, [*EPOCHS, *still, after], [record(clock=8)], history(), [ReturnedBlocks(2, GROUP, BACK)]
    ):
        check()


def test_one_that_survived_could_tell_the_clock_whatever_came_later() -> None:
    joined = replace(EPOCHS[-1], number=3, moved=(), cause="join")
    ended = replace(EPOCHS[-1], number=4, shards=(), moved=(), cause=END)
    checked = audit_ledger(
        JOB, [*EPOCHS, joined, ended], [record(clock=8)], history(), [ReturnedBlocks(2, GROUP, BACK)]
    )
    with pytest.raises(Violation, match="clock 12 was open before its epoch"):
        [check() for check in checked]


def test_where_nobody_could_tell_the_clock_is_that_of_what_came_back() -> None:
    """Every shard is another one."""
    fresh = tuple(replace(shard, incarnation=f"f{shard.incarnation[1:]}") for shard in SHARDS)
    after = replace(EPOCHS[0], number=3, shards=fresh, cause="failure", failure=2)
    said = record(clock=7, delta_exact=False)
    checked = audit_ledger(JOB, [*EPOCHS, after], [said], history(), [ReturnedBlocks(2, GROUP, BACK)])
    with pytest.raises(Violation, match="failure 1 says clock 7, and clock 8 came back"):
        [check() for check in checked]


def test_what_only_the_dead_had_served_is_no_survivors_clock() -> None:
    """All shards had died once before, and training went on from an older clock."""
    fresh = tuple(replace(shard, incarnation=f"f{shard.incarnation[1:]}") for shard in SHARDS)
    group = replace(GROUP, former_owner=fresh[1].key)
    epochs = [
        EPOCHS[0],
        replace(EPOCHS[0], number=2, shards=fresh, cause="failure", failure=1),
        replace(EPOCHS[1], number=3, shards=(fresh[0], fresh[2]), moved=(group,), failure=2),
    ]
    later = History(pulls=[pull(WORKERS[0], 12, 1, 1, 27, 39), pull(WORKERS[0], 9, 2, 2, 20, 30)])
    for clock in (9, 8):
        said = record(number=2, epoch=3, members=[fresh[1].key], clock=clock, delta_exact=False)
        checks = list(audit_ledger(JOB, epochs, [said], later, [ReturnedBlocks(3, group, BACK)]))
        if clock == 8:
            with pytest.raises(Violation, match="clock 9 was open before its epoch"):
                [check() for check in checks]
        else:
            [check() for check in checks]
