"""Reports of many runs add up, and say which seeds were played where."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.simulation.report import (
    add_files,
    add_reports,
    is_played,
    make_report,
    next_seed,
    seeds_of,
    speed_of,
)
from tests.simulation.simulate import ReportFile, choose_first, parse_arguments, read_report
from tests.simulation.simulated import Run


def played(seed: int, wrong: str = "", **tally: int) -> Run:
    counts = {name.replace("_", " "): count for name, count in tally.items()}
    return Run("swarm", seed, wrong, seconds=60.0, cpu=2.0, tally=counts)


FIRST = make_report([played(2, "lost", fault_kill=3), played(1), played(4, rpc_cut=1)], 5.0, "old")
SECOND = make_report([played(5, fault_kill=1, failpoint_end=2), played(6)], 3.0, "new")


def test_seeds_in_a_row_are_a_range_of_their_commit() -> None:
    assert FIRST["ranges"] == [
        {"scenario": "swarm", "first": 1, "last": 2, "commit": "old"},
        {"scenario": "swarm", "first": 4, "last": 4, "commit": "old"},
    ]
    assert (seeds_of(FIRST), next_seed(FIRST, "swarm"), speed_of(FIRST)) == (3, 5, 30.0)
    assert is_played(FIRST, "swarm", 4, 9)
    assert not is_played(FIRST, "swarm", 3, 3)
    assert not is_played(FIRST, "moments", 1, 9)
    assert next_seed(FIRST, "moments") == 1


def test_reports_add_up() -> None:
    both = add_reports(FIRST, SECOND)
    assert both == add_reports(SECOND, FIRST)
    assert (seeds_of(both), both["failed"], both["wall_seconds"], both["cpu_seconds"]) == (5, [2], 8.0, 10.0)
    assert both["faults"] == {"kill": 4}
    assert (both["rpcs"], both["failpoints"]) == ({"cut": 1}, {"end": 2})
    assert both["simulated_hours"] == pytest.approx(5 * 60 / 3600, abs=0.001)


def test_ranges_of_one_commit_that_follow_upon_each_other_are_one(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("whole.json", "second.json", "third.json")]
    reports = [SECOND, make_report([played(8)], 1.0, "new"), make_report([played(7)], 1.0, "new")]
    for file, report in zip(files, (FIRST, add_reports(*reports[:2]), reports[2]), strict=True):
        file.write_text(json.dumps(report))
    both = add_files(files[0], files[1:])
    assert [(one["first"], one["last"], one["commit"]) for one in both["ranges"]] == [
        (1, 2, "old"),
        (4, 4, "old"),
        (5, 8, "new"),
    ]
    assert json.loads(files[0].read_text()) == both
    with pytest.raises(SystemExit, match=r"third.json has seeds 7 to 7 of swarm, some of which"):
        add_files(files[0], files[2:])


def test_a_later_run_goes_on_after_the_report_and_adds_to_it(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    assert choose_first(parse_arguments([f"--report={file}"]), read_report(file)) == 1
    ReportFile(file, read_report(file), "old").write([played(1), played(2, "lost")])
    arguments = parse_arguments([f"--report={file}", "--seeds=2"])
    known = read_report(file)
    assert choose_first(arguments, known) == 3
    later = ReportFile(file, known, "new")
    assert seeds_of(later.write([played(3)])) == 1, "what this run did, for its exit code"
    later.write([played(3), played(4)])
    assert [(one["last"], one["commit"]) for one in json.loads(file.read_text())["ranges"]] == [
        (2, "old"),
        (4, "new"),
    ]


def test_a_seed_is_counted_once(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    ReportFile(file, read_report(file), "old").write([played(1), played(2)])
    with pytest.raises(SystemExit, match=r"leave --first out to go on at seed 3"):
        choose_first(parse_arguments([f"--report={file}", "--first=2"]), read_report(file))


def test_it_is_not_written_at_every_run(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    ReportFile(file, read_report(file), "new").write([played(1)], every=3600.0)
    assert not file.exists()
