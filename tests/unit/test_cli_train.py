"""What the command line changes about a training file's job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from scar.errors import ConfigError
from scar.jobfile import load_job
from scar.tables import Job
from scar_cli.cluster_ref import ClusterRef
from scar_cli.main import app
from scar_cli.requests import TrainRequest
from scar_cli.train import requested_job
from tests.repo.test_docs import ROOT

FILE = ROOT / "examples" / "mlr.py"


def asked_job(**options: Any) -> Job:
    return requested_job(TrainRequest(FILE, ClusterRef(), **options), load_job(str(FILE))[0])


def test_the_file_decides_what_the_command_line_leaves_out() -> None:
    job = asked_job()
    assert (job.recovery, job.replicas) == ("partial", 0)


def test_a_strategy_that_rolls_back_gets_full_checkpoints() -> None:
    job = asked_job(strategy="sync-checkpoint")
    assert job.strategy.stalls
    assert job.checkpoint.selection == "full"


def test_sources_of_lost_blocks() -> None:
    assert asked_job().sources == "checkpoint"
    assert asked_job(sources="workers").strategy.asks_workers
    with pytest.raises(ConfigError, match="sources 'worker' is unknown"):
        asked_job(sources="worker")
    assert asked_job(sources="workers", pull_slots=2).pull_slots == 2


def test_replicas() -> None:
    assert asked_job(shards=3, replicas=2).strategy.replicas == 2
    with pytest.raises(ConfigError, match="need more than 2 shards"):
        asked_job(shards=2, replicas=2, strategy="sync-chain")


def test_a_wrong_name_is_answered_with_the_right_ones(tmp_path: Path) -> None:
    arguments = ["train", str(FILE), "--cluster", str(tmp_path / "none"), "--strategy", "chain"]
    shown = CliRunner().invoke(app, arguments, env={"COLUMNS": "200", "TERM": "dumb"})
    assert shown.exit_code != 0
    said = shown.output + str(shown.exception)
    assert "recovery 'chain' is unknown" in said
    assert "sync-chain" in said
