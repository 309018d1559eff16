"""The oracle of reported losses finds a partial one, one that shards disagree about, another curve, and
silence.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from scar.losses import LossPoint
from scar.placement import BlockGroup, BlockSource, Epoch, Member, Role, spread_blocks
from scar_chaos.core.counting_job import initial_values, make_job
from scar_chaos.oracles.history import History, PullRecord, PushRecord, ShareRecord
from scar_chaos.oracles.reported_losses import LossesByShard, check_losses
from scar_chaos.oracles.violation import Violation

JOB = make_job(shards=1, workers=2)
SHARDS = (Member(Role.SHARD, "ps-0", "c" * 12),)
WORKERS = tuple(Member(Role.WORKER, f"worker-{rank}", letter * 12) for rank, letter in enumerate("ab"))
KEYS = [worker.key for worker in WORKERS]
BLOCKS = 24
CLOCKS = 8


def epoch(number: int = 1, workers: tuple[Member, ...] = WORKERS, **changes: Any) -> Epoch:
    return Epoch(number, "author", JOB.name, SHARDS, workers, spread_blocks(JOB, 1), **changes)


def history() -> tuple[History, dict[int, LossPoint]]:
    """Two workers push to all rows in every clock and report their halves."""
    past, values, told = History(), initial_values(JOB)["rows"].astype(np.int64), dict[int, LossPoint]()
    blocks = np.arange(BLOCKS, dtype=np.uint32)
    for clock in range(CLOCKS):
        for rank, key in enumerate(KEYS):
            past.pulls.append(PullRecord(key, clock, "rows", 1, 1, values.copy()))
            past.shares.append(ShareRecord(12 * rank, 12 * (rank + 1), key, clock))
        told[clock] = LossPoint(clock, float(values.sum()))
        for key in KEYS:
            past.pushes.append(PushRecord(key, clock + 1, clock, "rows", blocks))
            values = values + past.pushes[-1].amount
    past.acknowledged = dict.fromkeys(KEYS, CLOCKS)
    return past, told


def judge(
    past: History, *told: dict[int, LossPoint], epochs: tuple[Epoch, ...] = (epoch(),), **options: Any
) -> None:
    shards: LossesByShard = told
    check_losses(replace(JOB, **options), epochs, past, initial_values(JOB), shards)


def half(past: History, clock: int, rank: int = 0) -> float:
    (pull,) = (pull for pull in past.pulls if pull.worker == KEYS[rank] and pull.clock == clock)
    return float(pull.values[12 * rank : 12 * (rank + 1)].sum())


def test_a_right_run_is_right_and_a_shard_that_came_late_may_know_less():
    past, told = history()
    judge(past, told, {clock: told[clock] for clock in (6, 7)}, {})
    judge(past)  # no shard answered


def test_a_partial_loss_is_found():
    past, told = history()
    with pytest.raises(Violation, match="loss of clock 5 is"):
        judge(past, told | {5: LossPoint(5, half(past, 5))})
    with pytest.raises(Violation, match=r"is of 0\.5 of the data"):
        judge(past, told | {5: LossPoint(5, half(past, 5), 0.5)})
    dead = (epoch(), epoch(2, WORKERS[:1], fenced=("b" * 12,)))
    past.pulls = [replace(pull, after=2) if pull.clock > 4 else pull for pull in past.pulls]
    judge(past, told | {5: LossPoint(5, half(past, 5), 0.5)}, epochs=dead, share="drop")


def test_two_values_for_one_clock_are_found():
    past, told = history()
    with pytest.raises(Violation, match=r"loss of clock 3 is .* on one shard and"):
        judge(past, told, told | {3: LossPoint(3, half(past, 3))})


def test_without_a_failure_the_curve_is_that_of_a_twin():
    past, told = history()
    past.pulls = [replace(pull, values=pull.values + 1) if pull.clock == 6 else pull for pull in past.pulls]
    # recomputed it is right, but nobody may have seen such values
    told[6] = LossPoint(6, told[6].loss + BLOCKS)
    with pytest.raises(Violation, match=r"clock 6: .* without a failure"):
        judge(past, told)
    moved = (
        BlockGroup(
            "rows",
            np.arange(4, dtype=np.uint32),
            former_owner=SHARDS[0].key,
            source=BlockSource.OBJECT,
            clock=3,
        ),
    )
    past.pulls = [replace(pull, after=2) if pull.clock == 6 else pull for pull in past.pulls]
    judge(past, told, epochs=(epoch(), epoch(2, moved=moved, failure=1)))


@pytest.mark.parametrize("clock", [3, CLOCKS - 3])
def test_a_loss_that_nothing_explains_to_be_missing_is_found(clock: int):
    past, told = history()
    del told[clock]
    with pytest.raises(Violation, match="nothing had failed"):
        judge(past, told)


def test_a_worker_may_leave_long_before_its_epoch_comes():
    past, told = history()
    past.pulls = [
        replace(pull, after=2 if pull.clock > 6 else 1)
        for pull in past.pulls
        if pull.worker == KEYS[0] or pull.clock < 5
    ]
    past.shares = [
        replace(share, last=24) if share.clock > 6 else share
        for share in past.shares
        if share.worker == KEYS[0] or share.clock < 5
    ]
    left = (epoch(), epoch(2, WORKERS[:1]))
    for clock in (4, 5, 6):
        del told[clock]
    judge(past, told, epochs=left)
    del told[1]
    with pytest.raises(Violation, match=r"no loss of clocks \[1\], and nothing had failed"):
        judge(past, told, epochs=left)


def test_a_job_that_stays_without_losses_is_found():
    past, told = history()
    gone = (epoch(), epoch(2, WORKERS[:1]))
    past.pulls = [replace(pull, after=2) if pull.clock > 1 else pull for pull in past.pulls]
    with pytest.raises(Violation, match="newest loss is of clock 2"):
        judge(past, {clock: told[clock] for clock in (0, 1, 2)}, epochs=gone)
    judge(past, {clock: told[clock] for clock in (0, 1, 2, 5)}, epochs=gone)
