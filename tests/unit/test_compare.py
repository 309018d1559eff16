"""`scar compare`: what can be chosen, and what its numbers mean. Real clusters:
tests/system/test_compare.py.
"""

from __future__ import annotations

import io
from contextlib import nullcontext
from typing import Any

import pytest
from rich.console import Console

from scar.errors import ConfigError
from scar.tables import Job
from scar.v1.recovery_pb2 import FailureRecord
from scar.v1.types_pb2 import ROLE_SHARD, Epoch, Member
from scar_admin.status import ClusterStatus
from scar_compare import trial_runner
from scar_compare.backends import RunningJob
from scar_compare.comparison import StrategyComparison
from scar_compare.experiment import ExperimentOptions
from scar_compare.kill_schedule import KillAtClock, parse_kills
from scar_compare.report_table import fold_columns, print_table
from scar_compare.strategy_options import job_options, strategy_names
from scar_compare.training_file import job
from scar_compare.trial_runner import StrategyTrial, run_trials


@pytest.mark.parametrize("name", strategy_names())
def test_every_strategy_is_a_job_that_can_be(name: str) -> None:
    made = Job("compare", job.tables, workers=3, shards=4, **job_options(name))
    said = {made.recovery, made.worker_recovery, f"{made.worker_recovery}-{made.share}"}
    if made.strategy.asks_workers:
        replicas = "partial-missing" if made.strategy.missing else "partial-workers"
        said = {"partial-slots" if made.pull_slots else replicas}
    assert name in said


def test_kills_are_read_in_order() -> None:
    assert parse_kills(["worker-0@30", "ps-1@20"]) == (KillAtClock("ps-1", 20), KillAtClock("worker-0", 30))


@pytest.mark.parametrize("text", ["ps-1", "ps@20", "redis@3", "ps-1@x"])
def test_a_kill_that_cannot_be_says_how_to_write_one(text: str) -> None:
    with pytest.raises(ConfigError, match="ps-1@20"):
        parse_kills([text])


def test_an_unknown_strategy_says_which_there_are() -> None:
    with pytest.raises(ConfigError, match="sync-chain"):
        StrategyComparison(("hope",))


def record(panel: str, trial: int, losses: list[float], **more: Any) -> dict[str, Any]:
    clocks = list(range(len(losses)))
    known = {"kills": [], "detect": [], "recover": [], "lost_pushes": 0, "written": 0}
    return (
        {
            "panel": panel,
            "trial": trial,
            "clocks": clocks,
            "losses": losses,
            "seconds": [float(c) for c in clocks],
        }
        | known
        | more
    )


def test_rework_is_against_the_undisturbed_training_of_the_same_seed() -> None:
    kill = {"target": "ps-1", "clock": 2, "at": 1.5, "resumed": 4.0}
    records = [record("undisturbed", seed, [3, 2, 1, 0.5]) for seed in (0, 1)]
    records += [
        record("full", seed, [3, 2, 2.5, 1, 0.5 + seed, 0.5], kills=[kill], written=2_000_000)
        for seed in (0, 1)
    ]
    records += [record("full", 2, [3, 0.5])]  # without a twin it says nothing
    report = StrategyComparison(("full",), goal=0.6).make_report(ExperimentOptions(), records)
    full = report.summary["strategies"]["full"]
    assert full["seeds"] == 2
    assert full["rework"]["value"] == 1.5
    assert full["rise of the loss"]["value"] == 0.5
    assert full["pause, s"]["value"] == 2.5
    assert full["written, MB"]["value"] == 2.0
    assert "detect, s" not in full
    assert [row[0] for row in report.rows] == ["strategy", "undisturbed", "full"]
    assert report.summary["command"].startswith("scar compare full --kill ps-1@20")


def test_what_was_not_measured_is_no_number() -> None:
    """A detection of 0.0 s was shown where a successor had joined before the detector had noticed."""
    kill = {"target": "ps-1", "clock": 2, "at": 1.5, "resumed": None}
    records = [record(panel, seed, [3, 2, 1, 0.5]) for panel in ("undisturbed", "full") for seed in (0, 1)]
    records[2] |= {"detect": [-1.0, 0.25, -1.0], "kills": [kill]}
    records[3] |= {"detect": [-1.0]}
    full = (
        StrategyComparison(("full",)).make_report(ExperimentOptions(), records).summary["strategies"]["full"]
    )
    assert full["detect, s"]["value"] == 0.25
    assert "pause, s" not in full


class KilledJob(RunningJob):
    """The loss is at the goal at once; the ledger gets to name who was killed later."""

    def __init__(self) -> None:
        self.looks: list[int] = []  # how many members the ledger named at each look

    def status(self, since_clock: int) -> ClusterStatus:
        died = ["release-ps-1@1"] if len(self.looks) > 3 else []
        self.looks.append(len(died))
        shards = [
            Member(role=ROLE_SHARD, name=f"release-ps-{number}", incarnation="1") for number in range(4)
        ]
        failures = [FailureRecord(number=1, members=died, epoch=2, load_seconds=0.1)] if died else []
        return ClusterStatus(epoch=Epoch(number=1, shards=shards), failures=tuple(failures), losses={0: 0.5})

    def kill(self, name: str) -> None:
        assert name == "ps-1"

    def member(self, name: str) -> str:
        return f"release-{name}"

    def failed_workers(self) -> list[str]:
        return []


def test_a_training_is_not_over_before_the_ledger_names_who_was_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trial_runner, "train_job", lambda _job, _where: nullcontext(running))
    running = KilledJob()
    trial = StrategyTrial("full", (KillAtClock("ps-1", 0),), goal=0.6)
    (trained,) = run_trials(trial, seed=0, numbers=(0,))
    assert trained["detect"] == [0.0]
    assert sum(running.looks) == 1, "and no longer"
    assert trained["kills"][0]["resumed"] is None, "no clock was closed after it"


def test_one_seed_has_no_interval() -> None:
    records = [record(panel, 0, [3, 2, 1, 0.5]) for panel in ("undisturbed", "full")]
    report = StrategyComparison(("full",), goal=0.6).make_report(ExperimentOptions(), records)
    assert report.rows[2][:4] == ["full", "1", "4.00 [-]", "0.00 [-]"]


def test_a_table_is_readable_on_a_narrow_screen_and_in_a_pipe() -> None:
    heads = ["strategy", "seeds", *(f"measure {number}" for number in range(9))]
    rows = [
        heads,
        *([name, "3", *["84.00 [80.00, 88.00]"] * 9] for name in ("undisturbed", "sync-checkpoint")),
    ]
    parts = fold_columns(rows, 80)
    assert [part[0][0] for part in parts] == ["strategy"] * len(parts)
    assert [head for part in parts for head in part[0][1:]] == heads[1:]
    screen = Console(width=80, file=io.StringIO())
    print_table("compare", rows, screen)
    shown = screen.file.getvalue()  # type: ignore[attr-defined]
    assert max(map(len, shown.splitlines())) <= 80
    assert shown.count("84.00 [80.00, 88.00]") == 18
    assert fold_columns(rows, 1000) == [rows]


def test_every_strategy_sees_every_seed() -> None:
    batches = StrategyComparison(("full", "ps")).plan_batches(ExperimentOptions(trials=2))
    assert [(batch.panel, batch.trials) for batch in batches] == [
        (name, (seed,)) for seed in (0, 1) for name in ("undisturbed", "full", "ps")
    ]
