"""Records outlive a kill, statistics are those of the textbook, and a run goes on where the last one
stopped.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from scar_compare import runner, statistics
from scar_compare.experiment import ExperimentOptions, ExperimentReport, TrialBatch
from scar_compare.figures import Figure, Panel, Series
from scar_compare.records import TrialJournal, TrialRecord, records_of_panel
from scar_compare.trial_progress import TrialProgress


def test_a_torn_line_costs_only_itself(tmp_path: Path) -> None:
    journal = TrialJournal(tmp_path / "deep" / "x.jsonl", {"a": "plan"})
    journal.append({"panel": "a", "trial": 0, "cost": 1.5})
    with journal.path.open("a") as file:
        file.write('{"plan": "' + journal.plans["a"] + '", "pan')
    journal.append({"panel": "a", "trial": 1})
    journal.append({"panel": "a", "trial": 1, "late": True})
    TrialJournal(journal.path, {"a": "another"}).append({"panel": "a", "trial": 7})
    assert [(one["trial"], one.get("cost"), one.get("late")) for one in journal.read()] == [
        (0, 1.5, None),
        (1, None, None),
    ]
    assert [one["trial"] for one in records_of_panel(journal.read(), "a")] == [0, 1]
    assert records_of_panel(journal.read(), "b") == []


def test_interval_of_the_mean_covers_as_often_as_it_says() -> None:
    draw, covered = np.random.default_rng(1), 0
    for _ in range(400):
        found = statistics.mean_estimate(draw.normal(3.0, 2.0, 12).tolist())
        covered += found.low <= 3.0 <= found.high
    assert covered / 400 == pytest.approx(0.95, abs=0.035)
    assert statistics.mean_estimate([2.0]) == statistics.Estimate(2.0, 2.0, 2.0)


def test_reduction_is_a_paired_ratio_of_means() -> None:
    draw = np.random.default_rng(2)
    baseline = draw.uniform(1, 9, 60)
    found = statistics.reduction_estimate((baseline * 0.4).tolist(), baseline.tolist())
    assert found.value == pytest.approx(0.6)
    assert found.high - found.low < 1e-9, "pairs in one proportion leave nothing uncertain"
    noisy = statistics.reduction_estimate(
        (baseline * 0.4 + draw.normal(0, 1, 60)).tolist(), baseline.tolist()
    )
    assert noisy.low < 0.6 < noisy.high
    assert statistics.reduction_estimate([1.0, 2.0], [0.0, 0.0]).value == 0.0


class Toy:
    """An experiment that counts what it runs in a file, because it runs in other processes."""

    NAME = "toy"

    def plan_batches(self, options: ExperimentOptions) -> list[TrialBatch]:
        return [
            TrialBatch(panel, tuple(range(options.trials)), partial(_toy, str(options.out)))
            for panel in ("a", "b")
        ]

    def make_report(self, options: ExperimentOptions, records: Sequence[TrialRecord]) -> ExperimentReport:
        costs = [float(one["cost"]) for one in records_of_panel(records, "a")]
        figure = Figure([Panel("a", "x", "y", [Series("costs", list(range(len(costs))), costs)])], "toy")
        return ExperimentReport(
            {"mean": statistics.mean_estimate(costs).document}, [["panel", "cost"], ["a", "1"]], figure
        )


def _toy(out: str, trials: tuple[int, ...]) -> Iterator[TrialRecord]:
    for trial in trials:
        with (Path(out) / "ran").open("a") as file:
            file.write("x")
        yield {"trial": trial, "cost": trial / 2}


def test_a_run_goes_on_where_the_last_one_stopped(tmp_path: Path) -> None:
    console = Console(file=io.StringIO())
    runner.run_experiment(Toy(), ExperimentOptions(trials=2, out=tmp_path), console)
    assert (tmp_path / "ran").read_text() == "x" * 4
    runner.run_experiment(Toy(), ExperimentOptions(trials=3, out=tmp_path), console)
    assert (tmp_path / "ran").read_text() == "x" * 6
    assert '"command": "scar experiment toy --seed 1 --trials 3"' in (tmp_path / "toy.json").read_text()
    assert (tmp_path / "toy.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "toy.svg").read_text()


DRIVER = """
import io, os, sys, time
from functools import partial
from pathlib import Path
from rich.console import Console
from scar_compare.experiment import ExperimentOptions, TrialBatch
from scar_compare.runner import run_experiment

class Slow:
    NAME = "slow"
    def plan_batches(self, options):
        return [TrialBatch("a", (0,), partial(work, str(options.out)))]

def work(out, trials):
    Path(out, "draft").write_text(str(os.getpid()))
    os.replace(Path(out, "draft"), Path(out, "pid"))
    time.sleep(60)
    yield {"trial": 0}

if __name__ == "__main__":
    run_experiment(Slow(), ExperimentOptions(out=Path(sys.argv[1])), Console(file=io.StringIO()))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of its parent's end")
def test_what_a_killed_run_has_started_ends_with_it(tmp_path: Path) -> None:
    script, pid = tmp_path / "driver.py", tmp_path / "pid"
    script.write_text(DRIVER)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, script, tmp_path], env=environment) as driver:
        deadline = time.monotonic() + 60
        while not pid.exists():
            assert time.monotonic() < deadline, "the run did not start"
            time.sleep(0.01)
        driver.kill()
    while (
        Path("/proc", pid.read_text(), "cmdline").exists()
        and Path("/proc", pid.read_text(), "cmdline").read_bytes()
    ):
        assert time.monotonic() < deadline, "it outlives its driver"
        time.sleep(0.01)


def test_time_left_counts_only_what_this_run_has_done() -> None:
    progress = TrialProgress("toy", total=100, before=50, console=Console(file=io.StringIO()))
    started = progress._started
    assert progress.time_left(50, started + 10) == ""
    assert progress.time_left(60, started + 10) == "40 s left"
    assert progress.time_left(51, started + 10) == "8 min left"
