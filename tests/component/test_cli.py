"""The commands against a real cluster, as a person would type them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from scar_cli.clusters import running_cluster

pytestmark = pytest.mark.timeout(300)  # many processes, and other tests may run beside them

TRAIN = """
import os
import numpy as np
import scar

table = scar.Table("w", (40, 3), rule=scar.add())
job = scar.Job(os.environ.get("TEST_JOB", "count"), tables=[table], shards=2, workers=2)

def train(worker):
    for clock in worker.clocks(limit=int(os.environ.get("TEST_CLOCKS", "40"))):
        if os.environ.get("TEST_FAIL") == "1":
            raise ValueError("no data")
        if os.environ.get("TEST_FAIL") == "table":
            worker.pull("W")
        worker.pull("w")
        worker.push("w", np.ones((40, 3), np.float32))
        worker.report(1.0 / (1 + clock))
"""

ARGUMENTS = """
import sys
import numpy as np
import scar

name = {"7": "seven"}[sys.argv[sys.argv.index("--limit") + 1]]
job = scar.Job(name, tables=[scar.Table("w", 4, rule=scar.add())], shards=1)

def train(worker):
    import neighbour
    for clock in worker.clocks(limit=neighbour.limit(sys.argv[-1])):
        worker.push("w", np.ones(4, np.float32))
        worker.report(1.0)
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
    said = made.run("up", "--shards", "2", "--detach")
    assert re.search(r"up: 2 shards, recovery coordinator at 127\.0\.0\.1:\d+\nstore file:///", said)
    assert "next: scar train FILE · scar watch · scar console · scar kill ps-0 · scar down stops" in said
    yield made
    assert "stopped" in made.run("down")


def test_up_is_up_only_once(shell: Shell) -> None:
    assert "in use by process" in shell.run("up", code=1)
    assert "runs already" in shell.run("up", "--detach", code=1)


@pytest.fixture(scope="module")
def trained(shell: Shell) -> Shell:
    """Where a training has ended during which a server was killed: whichever test comes first needs it."""
    training = shell.start("train", "count.py", TEST_CLOCKS="400")
    deadline = time.monotonic() + 30
    while not (clock := shell.json("status")["clock"]) or clock < 10:
        assert time.monotonic() < deadline
        assert training.poll() is None, training.communicate()
    assert "killed ps-0" in shell.run("kill", "ps-0")
    out, err = training.communicate(timeout=60)
    assert training.returncode == 0, err
    assert "job count on cluster 'local': 2 workers; see it by `scar console`" in out
    assert "finished job count: 400 clocks, loss 0.005" in out
    return shell


def test_a_training_uses_the_cluster_and_heals(trained: Shell) -> None:
    failures = trained.json("failures")["failures"]
    assert [record["members"][0].partition("@")[0] for record in failures] == ["ps-0"]
    assert "healed in epoch" in trained.run("failures")
    [job] = trained.json("jobs", "ls")["jobs"]
    assert (job["job"], job["held"]) == ("count", True)
    assert "a cluster has job 'count'" in trained.run("jobs", "rm", "count", "--yes", code=1)


def test_status_shows_every_service(trained: Shell) -> None:
    shown = trained.run("status")
    for name in ("ps-0", "ps-1", "recovery-0", "checkpoint-0", "detector-0", "redis"):
        assert name in shown
    assert "job count (bsp, partial) · clock 400" in shown


def test_watch_without_a_terminal_prints_lines(trained: Shell) -> None:
    watching = trained.start("watch", "--interval", "0.1")
    assert watching.stdout is not None
    lines = [watching.stdout.readline()]
    while lines[-1] and not lines[-1].startswith("ps-1: running"):
        lines.append(watching.stdout.readline())
    watching.terminate()
    _, err = watching.communicate(timeout=20)
    assert lines[0].startswith("job count (bsp, partial)")
    assert (bool(lines[-1]), watching.returncode, err) == (True, 0, "")


def test_the_checkpoints_are_whole_and_can_be_exported(trained: Shell) -> None:
    assert "all good" in trained.run("checkpoints", "verify")
    manifests = trained.json("checkpoints", "ls")["manifests"]
    assert len(manifests) >= 1
    trained.run("checkpoints", "show", "0")
    trained.run("checkpoints", "export", "model.safetensors")
    assert load_file(trained.folder / "model.safetensors")["w"].shape == (40, 3)


def test_a_second_job_of_that_name_is_refused(trained: Shell) -> None:
    shown = trained.run("train", "count.py", code=1)
    assert "error:" in shown
    assert "next:" in shown


def test_doctor_finds_the_cluster_well(trained: Shell) -> None:
    checks = trained.json("doctor")["checks"]
    assert [check for check in checks if check["level"] == "fail"] == []


def test_a_story_says_why_the_killed_server_was_accused_and_what_rounds_did(trained: Shell) -> None:
    story = trained.json("doctor", "--story", "detector-0", "--last", "0")
    assert story["name"] == "detector-0"
    actions = [action for entry in story["entries"] for action in entry["actions"]]
    accused = [one["fields"]["member"] for one in actions if one["name"] == "AccuseMember"]
    assert any(key.startswith("ps-0@") for key in accused)
    shown = trained.run("doctor", "--story", "checkpoint-0", "--last", "0")
    assert "-> RoundDone result=committed" in shown
    assert shown.startswith("checkpoint-0@")
    assert "no process 'ps-9' is known" in trained.run("doctor", "--story", "ps-9", code=1)


def test_another_job_begins_where_an_exported_model_ended(trained: Shell) -> None:
    trained.run("checkpoints", "export", "first.safetensors", "--job", "count")
    begin = ("train", "count.py", "--name", "again", "--init-from")
    assert "cannot be read as safetensors" in trained.run(*begin, "count.py", code=1)
    trained.run(*begin, "first.safetensors", TEST_CLOCKS="3")
    trained.run("checkpoints", "export", "again.safetensors", "--job", "again")
    first, again = (load_file(trained.folder / f"{name}.safetensors")["w"] for name in ("first", "again"))
    assert (again == first + 6).all()
    assert "Leave one of them out" in trained.run(*begin, "first.safetensors", "--resume", code=1)


def test_a_training_on_its_own_cluster_and_its_resumption(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    out = shell.run("train", "count.py", "--workers", "1", "--shards", "1", TEST_JOB="own")
    assert "on a cluster of its own: 1 shard, 1 worker;" in out
    assert "finished job own: 40 clocks" in out
    assert running_cluster("local") is None
    out = shell.run(
        "train", "count.py", "--workers", "1", "--shards", "1", "--resume", TEST_JOB="own", TEST_CLOCKS="60"
    )
    assert "finished job own: 60 clocks" in out
    assert "all good" in shell.run("checkpoints", "verify")
    # no cluster runs: the store says that the first one's shard is gone
    assert "healed in epoch" in shell.run("failures")
    [job] = shell.json("jobs", "ls")["jobs"]
    assert (job["job"], job["state"], job["clock"], job["held"]) == ("own", "finished", 60, False)
    refused = shell.run("train", "count.py", "--workers", "1", "--shards", "1", code=1, TEST_JOB="own")
    assert "job 'own' exists already" in refused
    assert "scar jobs rm own" in refused
    assert "removed job own" in shell.run("jobs", "rm", "own", "--yes")
    assert "finished job own: 40 clocks" in shell.run(
        "train", "count.py", "--workers", "1", "--shards", "1", TEST_JOB="own"
    )


def test_a_file_that_fails_says_where(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shown = shell.run("train", "count.py", "--workers", "1", "--shards", "1", code=1, TEST_FAIL="1")
    assert "worker-0 ended with exit code 1" in shown
    assert "no data" in shown
    assert "no Python file" in shell.run("train", "missing.py", code=1)


def test_an_error_of_the_sdk_is_shown_under_the_users_own_line(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shown = shell.run("train", "count.py", "--workers", "1", "--shards", "1", code=1, TEST_FAIL="table")
    assert 'worker.pull("W")' in shown
    assert "has no table 'W'. Did you mean 'w'? Use one of w" in shown
    assert not re.search(r"(orders|training|tables)\.py", shown)


def test_a_file_gets_arguments_and_imports_its_neighbours_while_it_trains(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    (tmp_path / "neighbour.py").write_text("def limit(text):\n    return int(text)\n")
    (tmp_path / "own.py").write_text(ARGUMENTS)
    out = shell.run("train", "own.py", "--shards", "1", "--", "--limit", "7")
    assert "finished job seven: 7 clocks" in out
