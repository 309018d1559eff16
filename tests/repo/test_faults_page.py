"""The page of faults says what the recorded run did, and where processes crashed and stood still."""

from __future__ import annotations

import json

from scripts.faults_page import RECORD, _describe_run, _failpoint_lines
from tests.simulation.faults import FAILPOINTS, KINDS
from tests.simulation.report import make_report
from tests.simulation.simulated import Run


def test_each_failpoint_has_a_line_with_its_counts() -> None:
    lines = _failpoint_lines({"crash epoch.created": 2, "pause /Save": 3, "pause epoch.created": 9})
    assert "| `epoch.created` | 2 |  |" in lines, "nobody is told to stand still there"
    assert "| `/Save` |  | 3 |" in lines
    assert any(f"2 of {sum(map(len, FAILPOINTS.values()))} were hit" in line for line in lines)


def test_a_run_without_counts_has_no_table() -> None:
    assert _failpoint_lines({}) == []


def test_the_run_is_described_as_its_report_has_it() -> None:
    tally = {"fault kill": 2, "fault pause": 1, "pair kill+pause": 2}
    runs = [
        Run("swarm", seed, "lost" * (seed == 4), seconds=3600.0, cpu=72.0, tally=tally) for seed in (3, 4, 9)
    ]
    text = " ".join(_describe_run(make_report(runs, 99.0, "abc")))
    assert "3 seeds, 3.0 simulated hours, 9 faults of 2 kinds, 6 pairs of 1 kinds" in text
    assert "1 seeds failed" in text
    assert "swarm at `abc`: 3 to 4, 9" in text
    assert "50.0 simulated seconds per second of processor time" in text


def test_a_failed_seed_that_is_kept_counts_as_mended() -> None:
    seeds = (1460, 99_999_999)
    runs = [Run("swarm", seed, "lost", seconds=1.0, cpu=1.0, tally={}) for seed in seeds]
    text = " ".join(_describe_run(make_report(runs, 9.0, "abc")))
    assert "by `make replay`: 1460." in text
    assert "mended or not: 99999999." in text


def test_the_recorded_run_tried_enough() -> None:
    record = json.loads(RECORD.read_text())
    assert set(record["faults"]) <= set(KINDS)
    assert len(record["faults"]) >= 40
    assert len(record["pairs"]) >= 60
    assert record["failpoints"]
