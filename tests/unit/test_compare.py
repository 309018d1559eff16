"""`scar compare`: what can be chosen, and what its numbers mean. Real clusters: tests/system/test_compare.py."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.compare.choices import Kill, names, options_of, schedule
from experiments.compare.comparison import Comparison
from experiments.compare.train import job
from experiments.runner import Options
from scar.errors import ConfigError
from scar.tables import Job


@pytest.mark.parametrize("name", names())
def test_every_strategy_is_a_job_that_can_be(name: str) -> None:
    made = Job("compare", job.tables, workers=3, shards=4, **options_of(name))
    assert name in (made.recovery, made.worker_recovery, f"{made.worker_recovery}-{made.share}")


def test_kills_are_read_in_order() -> None:
    assert schedule(["worker-0@30", "ps-1@20"]) == (Kill("ps-1", 20), Kill("worker-0", 30))


@pytest.mark.parametrize("text", ["ps-1", "ps@20", "redis@3", "ps-1@x"])
def test_a_kill_that_cannot_be_says_how_to_write_one(text: str) -> None:
    with pytest.raises(ConfigError, match="ps-1@20"):
        schedule([text])


def test_an_unknown_strategy_says_which_there_are() -> None:
    with pytest.raises(ConfigError, match="sync-chain"):
        Comparison(("hope",))


def record(panel: str, trial: int, losses: list[float], **more: Any) -> dict[str, Any]:
    clocks = list(range(len(losses)))
    known = {"kills": [], "detect": [], "recover": [], "lost_pushes": 0, "written": 0}
    return (
        {"panel": panel, "trial": trial, "clocks": clocks, "losses": losses, "seconds": [float(c) for c in clocks]}
        | known
        | more
    )


def test_rework_is_against_the_undisturbed_training_of_the_same_seed() -> None:
    kill = {"target": "ps-1", "clock": 2, "at": 1.5, "resumed": 4.0}
    records = [record("undisturbed", seed, [3, 2, 1, 0.5]) for seed in (0, 1)]
    records += [record("full", seed, [3, 2, 2.5, 1, 0.5 + seed, 0.5], kills=[kill], written=2_000_000) for seed in (0, 1)]
    records += [record("full", 2, [3, 0.5])]  # without a twin it says nothing
    report = Comparison(("full",), goal=0.6).report(Options(), records)
    full = report.summary["strategies"]["full"]
    assert full["seeds"] == 2
    assert full["rework"]["value"] == 1.5
    assert full["rise of the loss"]["value"] == 0.5
    assert full["pause, s"]["value"] == 2.5
    assert full["written, MB"]["value"] == 2.0
    assert "detect, s" not in full
    assert [row[0] for row in report.rows] == ["strategy", "undisturbed", "full"]
    assert report.summary["command"].startswith("scar compare full --kill ps-1@20")


def test_every_strategy_sees_every_seed() -> None:
    batches = Comparison(("full", "ps")).batches(Options(trials=2))
    assert [(batch.panel, batch.trials) for batch in batches] == [
        (name, (seed,)) for seed in (0, 1) for name in ("undisturbed", "full", "ps")
    ]
