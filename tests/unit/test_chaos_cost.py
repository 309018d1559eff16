"""What faults cost, computed from made-up records; and the verdict over them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from scar.placement import BlockGroup, BlockSource, Epoch, Member, Role, spread_blocks
from scar.v1.recovery_pb2 import FailureRecord
from scar_chaos.core.counting_job import initial_values, make_job, push_amount
from scar_chaos.oracles.cost import clock_rate, measure_cost, measure_rework
from scar_chaos.oracles.history import History, PushRecord
from scar_chaos.oracles.verdict import RunRecords, judge_run
from scar_chaos.recorder import newest_clocks

JOB = make_job(shards=2)
WORKER = "worker-0@aaaaaaaaaaaa"
SHARDS = tuple(Member(Role.SHARD, f"ps-{n}", letter * 12) for n, letter in enumerate("bc"))
WORKERS = (Member(Role.WORKER, "worker-0", "aaaaaaaaaaaa"),)


def epoch(number: int, moved: tuple[BlockGroup, ...] = ()) -> Epoch:
    return Epoch(number, "author", JOB.name, SHARDS, WORKERS, spread_blocks(JOB, 2), moved)


def group(table: str, blocks: int, source: BlockSource, clock: int) -> BlockGroup:
    return BlockGroup(
        table, np.arange(blocks, dtype=np.uint32), former_owner=SHARDS[0].key, source=source, clock=clock
    )


def ticking(
    rate: float, seconds: float, worker: str = WORKER, begin: float = 0.0
) -> list[tuple[float, str, int]]:
    return [(begin + n / rate, worker, n) for n in range(round(rate * seconds) + 1)]


def test_pace_counts_only_who_lived_through_it() -> None:
    past = History(
        opened=[
            *ticking(20, 10),
            *ticking(40, 3, "worker-1@bbbbbbbbbbbb"),
            *ticking(40, 4, "worker-1@cccccccccccc", 6),
        ]
    )
    assert clock_rate(past, 2.0, 4.0) == pytest.approx(20.0)
    assert clock_rate(past, 1.0, 2.0) == pytest.approx(30.0)
    assert clock_rate(past, 50.0, 60.0) == 0.0


def test_rework_is_the_mean_over_all_blocks_of_what_was_restored() -> None:
    groups = (
        group("rows", 12, BlockSource.OBJECT, 90),
        group("pairs", 4, BlockSource.INITIAL, 0),
        group("ragged", 9, BlockSource.DONOR, 0),
    )
    ledger = [FailureRecord(epoch=3, clock=100)]
    assert measure_rework(JOB, [epoch(3, groups), epoch(4)], ledger) == pytest.approx(
        (12 * 10 + 4 * 100) / JOB.blocks
    )
    assert measure_rework(JOB, [epoch(3)], ledger) == 0.0
    assert measure_rework(JOB, [epoch(3, groups)], []) == 0.0, "a start restores, too"


def test_cost_takes_the_longest_of_each_phase_and_the_survivors_pace() -> None:
    records = [
        FailureRecord(
            detect_seconds=0.1,
            wait_seconds=0.0,
            commit_seconds=0.02,
            load_seconds=0.3,
            lost_blocks=4,
            lost_pushes=3,
        ),
        FailureRecord(
            detect_seconds=0.4,
            wait_seconds=2.0,
            commit_seconds=0.01,
            load_seconds=0.0,
            lost_blocks=5,
            resent_pushes=2,
        ),
    ]
    past = History(opened=[*ticking(20, 10), *ticking(10, 10, begin=10.05), (21.0, WORKER, 9)])
    spent = measure_cost(JOB, [], records, past, struck=12.0, calm=20.0)
    assert (spent.failures, spent.lost_blocks, spent.lost_pushes, spent.resent_pushes) == (2, 9, 3, 2)
    assert spent.detect == pytest.approx(0.4)
    assert spent.recover == pytest.approx(2.01)
    assert spent.throughput == pytest.approx(0.5, abs=0.05)


def test_a_detection_that_was_not_measured_shortens_nothing() -> None:
    failures = [FailureRecord(detect_seconds=-1, commit_seconds=0.5, load_seconds=1.5)]
    past = History(opened=ticking(20, 10))
    spent = measure_cost(JOB, [], failures, past, struck=11.0, calm=2.0)
    assert (spent.detect, spent.recover) == (-1.0, 2.0)
    assert spent.throughput == clock_rate(past, 11.0, 13.0) / 2.0


def test_nothing_failed_nothing_is_claimed() -> None:
    spent = measure_cost(JOB, [], [], History(), struck=1.0, calm=0.0)
    assert (spent.failures, spent.detect, spent.recover, spent.throughput) == (0, -1.0, -1.0, -1.0)


def records(**changed: np.ndarray) -> RunRecords:
    """One acknowledged push to all rows; ``changed``: values of tables that are not as they should be."""
    ids = np.arange(24, dtype=np.uint32)
    past = History(
        pushes=[PushRecord(WORKER, 1, 0, "rows", ids)], acknowledged={WORKER: 1}, opened=[(0.0, WORKER, 0)]
    )
    values = initial_values(JOB)
    values["rows"] = values["rows"] + push_amount(WORKER, 1)
    return RunRecords(JOB, [epoch(1)], [], past, values | changed, initial_values(JOB))


def test_a_right_run_is_found_right() -> None:
    verdict = judge_run(records())
    assert verdict.violations == ()
    verdict.enforce()


def test_missing_and_doubled_pushes_are_counted_and_named() -> None:
    rows = initial_values(JOB)["rows"] + push_amount(WORKER, 1)
    rows[3] -= push_amount(WORKER, 1)
    rows[[7, 9]] += push_amount(WORKER, 1)
    verdict = judge_run(records(rows=rows))
    assert (verdict.missing, verdict.doubled) == (1, 2)
    assert "acknowledged, yet missing" in verdict.violations[0]
    assert "applied twice" in verdict.violations[1]
    with pytest.raises(AssertionError, match="block 7"):
        verdict.enforce()


def test_a_checkpoint_that_knows_more_than_the_model_is_a_violation() -> None:
    right = records()
    ahead = RunRecords(
        right.job, right.epochs, right.ledger, right.history, right.values, {"pairs": np.full(16, 8)}
    )
    assert "ahead of the model: table pairs" in judge_run(ahead).violations[0]


def test_a_gap_in_the_epochs_is_a_violation() -> None:
    right = records()
    wrong = RunRecords(
        right.job, [epoch(1), epoch(3)], right.ledger, right.history, right.values, right.saved
    )
    assert judge_run(wrong).violations == ("epochs are [1, 3]",)


def test_the_clocks_that_were_opened_last(tmp_path: Path) -> None:
    """Of a long record only the end is read; a line that is being written does not count."""
    lines = "".join(
        f'{{"open": {clock}, "at": 1.0}}\n{{"pull": {clock}, "values": [{"0, " * 5000}0]}}\n'
        for clock in range(9)
    )
    (tmp_path / "worker-0@a.jsonl").write_text(lines + '{"open": 9, "at"')
    (tmp_path / "worker-1@b.jsonl").write_text("")
    assert newest_clocks(tmp_path) == [8]
