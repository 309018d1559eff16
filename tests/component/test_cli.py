"""The commands against a real cluster, as a person would type them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from scar_cli.clusters import running

pytestmark = pytest.mark.timeout(300)  # many processes, and other tests may run beside them

TRAIN = """
import os
import numpy as np
import scar

job = scar.Job(os.environ.get("TEST_JOB", "count"), tables=[scar.Table("w", (40, 3), rule=scar.add())], shards=2, workers=2)

def train(worker):
    for clock in worker.clocks(limit=int(os.environ.get("TEST_CLOCKS", "40"))):
        if os.environ.get("TEST_FAIL"):
            raise ValueError("no data")
        worker.pull("w")
        worker.push("w", np.ones((40, 3), np.float32))
        worker.report(1.0 / (1 + clock))
"""


class Shell:
    """Runs `scar ...` in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "NO_COLOR": "1"}
        (folder / "count.py").write_text(TRAIN)

    def start(self, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "scar_cli", *arguments],
            cwd=self.folder,
            env={**self.environment, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, code: int = 0, **variables: str) -> str:
        """What it printed; its exit code must be ``code``."""
        process = self.start(*arguments, **variables)
        out, err = process.communicate(timeout=90)
        assert process.returncode == code, f"{out}\n{err}"
        assert "Traceback (most recent call last)" not in err
        return out if code == 0 else out + err

    def json(self, *arguments: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run(*arguments, "-o", "json"))
        return found


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A cluster that is up, in the background."""
    made = Shell(tmp_path_factory.mktemp("home"))
    assert "up:" in made.run("up", "--shards", "2", "--detach")
    yield made
    assert "stopped" in made.run("down")


def test_up_is_up_only_once(shell: Shell) -> None:
    assert "in use by process" in shell.run("up", code=1)
    assert "runs already" in shell.run("up", "--detach", code=1)


def test_a_training_uses_the_cluster_and_heals(shell: Shell) -> None:
    training = shell.start("train", "count.py", TEST_CLOCKS="400")
    deadline = time.monotonic() + 30
    while not (clock := shell.json("status")["clock"]) or clock < 10:
        assert time.monotonic() < deadline
        assert training.poll() is None, training.communicate()
    assert "killed ps-0" in shell.run("kill", "ps-0")
    out, err = training.communicate(timeout=60)
    assert training.returncode == 0, err
    assert "job count on cluster 'local': 2 workers" in out
    assert "finished job count: 400 clocks, loss 0.005" in out
    failures = shell.json("failures")["failures"]
    assert [record["members"][0].partition("@")[0] for record in failures] == ["ps-0"]
    assert "healed in epoch" in shell.run("failures")


def test_status_shows_every_service(shell: Shell) -> None:
    shown = shell.run("status")
    for name in ("ps-0", "ps-1", "recovery-0", "checkpoint-0", "detector-0", "redis"):
        assert name in shown
    assert "job count (bsp, partial) · clock 400" in shown


def test_watch_without_a_terminal_prints_lines(shell: Shell) -> None:
    watching = shell.start("watch", "--interval", "0.1")
    assert watching.stdout is not None
    lines = [watching.stdout.readline()]
    while lines[-1] and not lines[-1].startswith("ps-1: running"):
        lines.append(watching.stdout.readline())
    watching.terminate()
    _, err = watching.communicate(timeout=20)
    assert lines[0].startswith("job count (bsp, partial)")
    assert (bool(lines[-1]), watching.returncode, err) == (True, 0, "")


def test_the_checkpoints_are_whole_and_can_be_exported(shell: Shell) -> None:
    assert "all good" in shell.run("checkpoints", "verify")
    manifests = shell.json("checkpoints", "ls")["manifests"]
    assert len(manifests) >= 1
    shell.run("checkpoints", "show", "0")
    shell.run("checkpoints", "export", "model.safetensors")
    assert load_file(shell.folder / "model.safetensors")["w"].shape == (40, 3)


def test_a_second_job_of_that_name_is_refused(shell: Shell) -> None:
    shown = shell.run("train", "count.py", code=1)
    assert "error:" in shown
    assert "next:" in shown


def test_doctor_finds_the_cluster_well(shell: Shell) -> None:
    checks = shell.json("doctor")["checks"]
    assert [check for check in checks if check["level"] == "fail"] == []


def test_a_training_on_its_own_cluster_and_its_resumption(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    out = shell.run("train", "count.py", "--workers", "1", "--shards", "1", TEST_JOB="own")
    assert "on a cluster of its own: 1 shards, 1 workers" in out
    assert "finished job own: 40 clocks" in out
    assert running("local") is None
    out = shell.run("train", "count.py", "--workers", "1", "--shards", "1", "--resume", TEST_JOB="own", TEST_CLOCKS="60")
    assert "finished job own: 60 clocks" in out
    assert "all good" in shell.run("checkpoints", "verify")


def test_a_file_that_fails_says_where(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shown = shell.run("train", "count.py", "--workers", "1", "--shards", "1", code=1, TEST_FAIL="1")
    assert "worker-0 ended with exit code 1" in shown
    assert "no data" in shown
    assert "no Python file" in shell.run("train", "missing.py", code=1)
