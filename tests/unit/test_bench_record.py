"""Today's ratios beside those that are recorded."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from benchmarks import run
from benchmarks.measure import BenchRow, Pair, rate_row
from benchmarks.record import (
    RECORD,
    BenchMachine,
    RecordedRow,
    ratio_change,
    read_record,
    recorded,
    write_record,
)
from scar.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
ROW = RecordedRow("dense", "push", 1.0, 2.0, 0.5, "GB/s", "2026-11-25", 1.25, 2)


def row(ratio: float, name: str = "push") -> BenchRow:
    return rate_row(name, 1.0, Pair(1.0, ratio), "GB/s", "plain TCP")


@pytest.mark.parametrize(("today", "before", "change"), [(0.5, 0.5, 0.0), (0.6, 0.5, 0.2), (0.1, 0.4, -0.75)])
def test_a_change_is_of_speed_by_the_yardstick(today: float, before: float, change: float) -> None:
    assert ratio_change(today, before) == pytest.approx(change)


def test_a_record_comes_back_as_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "new" / "bench.json"
    assert read_record(file) == {}
    machine = BenchMachine(2, "cubic")
    new = [recorded("dense", row(0.5), "2026-11-25", 1.2512, machine), replace(ROW, benchmark="torch_rpc")]
    write_record(file, {}, new)
    assert read_record(file) == {("dense", "push"): new[0], ("torch_rpc", "push"): new[1]}
    assert (new[0].load, new[0].cores, new[0].tcp) == (1.25, 2, "cubic")


def test_what_is_not_measured_again_stays(tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    other = replace(ROW, name="pull", made="2026-01-01")
    write_record(file, {}, [ROW, other])
    write_record(file, read_record(file), [replace(ROW, ratio=0.7)])
    assert {key: one.ratio for key, one in read_record(file).items()} == {
        ("dense", "pull"): 0.5,
        ("dense", "push"): 0.7,
    }


@pytest.mark.parametrize(
    "change",
    [{"ratio": 0}, {"ratio": "fast"}, {"ours": float("nan")}, {"load": float("inf")}, {"cores": None}],
    ids=str,
)
def test_a_record_that_is_none_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    file = tmp_path / "bench.json"
    file.write_text(json.dumps({"rows": [{**asdict(ROW), **change}]}))
    with pytest.raises(ConfigError, match="is no record of benchmarks") as refused:
        read_record(file)
    assert "make bench RECORD=" in refused.value.next_step


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"rows": [1]}', '{"rows": [{}]}', "[" * 100_000])
def test_so_is_text_that_is_something_else(tmp_path: Path, text: str) -> None:
    file = tmp_path / "bench.json"
    file.write_text(text)
    with pytest.raises(ConfigError):
        read_record(file)


def test_the_table_shows_both_ratios(capsys: pytest.CaptureFixture[str]) -> None:
    table = run.report_table({"dense": [row(0.6), row(0.8, "new")]}, {ROW.key: ROW})
    Console(width=200).print(table)
    lines = capsys.readouterr().out.splitlines()
    (known,) = (line for line in lines if "push" in line)
    assert [cell.strip() for cell in known.split("│")[5:8]] == ["0.60", "0.50", "+20%"]
    (new,) = (line for line in lines if "new" in line)
    assert [cell.strip() for cell in new.split("│")[5:8]] == ["0.80", "-", "-"]


def test_a_run_records_what_it_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run, "BENCHMARKS", {"dense": lambda _: [row(0.6)], "absent": lambda _: []})
    assert run.main(["--record", "bench.json"]) == 0
    (found,) = read_record(tmp_path / "bench.json").values()
    assert found.key == ("dense", "push")
    assert found.ratio == pytest.approx(0.6)
    assert json.loads((tmp_path / run.OUTPUT).read_text())["rows"][0]["name"] == "push"
    assert run.main([]) == 0
    assert not (tmp_path / RECORD).exists(), "only who asks for it records"


def test_when_a_record_was_made_is_said() -> None:
    assert "No ratio is recorded" in run.describe_record({})
    known = {ROW.key: ROW, ("a", "b"): replace(ROW, made="2026-11-20", load=3.0, cores=4)}
    assert run.describe_record(known) == (
        "Recorded: 2026-11-20 to 2026-11-25, on 2, 4 cores, load before 1.2 to 3.0"
    )
    controlled = {key: replace(one, tcp="bbr") for key, one in known.items()}
    assert run.describe_record(controlled) == run.describe_record(known) + ", TCP by bbr"


def test_a_record_of_an_older_version_has_no_control_of_congestion(tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    written = asdict(replace(ROW, tcp="bbr"))
    del written["tcp"]
    file.write_text(json.dumps({"rows": [written]}))
    assert read_record(file) == {ROW.key: ROW}


def test_the_record_of_the_repository_is_one_of_benchmarks_that_exist() -> None:
    known = read_record(ROOT / RECORD)
    assert known
    assert {benchmark for benchmark, _ in known} <= set(run.BENCHMARKS)
