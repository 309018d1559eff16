"""What a person sees of a training that does not go on, with real processes: who is waited for, since
when, and why.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from tests.component.test_cli import Shell

pytestmark = pytest.mark.timeout(300)

TRAIN = """
import os, sys, threading, time
import numpy as np
import scar

job = scar.Job(os.environ["TEST_HOW"], [scar.Table("w", (40, 3), rule=scar.add())],
               shards=int(os.environ.get("TEST_SHARDS", "2")), workers=2)

def dig():
    while True:
        time.sleep(0.01)

def train(worker):
    for clock in worker.clocks(limit=20):
        print("clock", clock)
        worker.push("w", np.ones((40, 3), np.float32))
        worker.report(float("nan") if os.environ["TEST_HOW"] == "nan" else 1.0)
        if clock == 5 and worker.rank == 0:
            how = os.environ["TEST_HOW"]
            if how == "exits":
                sys.exit(3)
            if how == "vanishes":
                os._exit(1)
            if how == "loops":
                dig()
    if os.environ["TEST_HOW"] == "early":
        sys.exit(0)
"""


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A cluster of two shards, in the background."""
    made = Shell(tmp_path_factory.mktemp("home"))
    (made.folder / "life.py").write_text(TRAIN)
    made.run("up", "--shards", "2", "--detach")
    yield made
    made.run("down")


def told(training: subprocess.Popen[str], what: str, seconds: float = 90.0) -> list[str]:
    """Lines up to the one that has ``what``; a timer ends the training that never says it."""
    assert training.stdout is not None
    end, lines = time.monotonic() + seconds, [""]
    while what not in lines[-1]:
        assert training.poll() is None, "".join(lines)
        assert time.monotonic() < end, "".join(lines)
        lines.append(training.stdout.readline())
    return lines


def stop(training: subprocess.Popen[str]) -> str:
    training.send_signal(signal.SIGINT)
    out, err = training.communicate(timeout=90)
    return out + err


@pytest.mark.timed
def test_a_worker_that_loops_is_named_with_its_stack(shell: Shell) -> None:
    training = shell.start("train", "life.py", TEST_HOW="loops")
    told(training, "worker-0 | clock 5")
    began = time.monotonic()
    told(training, "waiting: worker-0 has not finished clock 5")
    said = told(training, "in train:")
    assert time.monotonic() - began < 10
    assert "in dig:" in "".join(said)
    status = shell.run("status")
    assert "worker-0 has not finished clock 5" in status
    assert "in dig:" in status
    checks = shell.run("doctor", code=1)
    assert "worker-0 has not finished clock 5" in checks
    (wait,) = (wait for wait in shell.json("status")["waiting"] if wait["worker"] == "worker-0")
    assert wait["seconds"] > 5
    assert "in train:" in wait["stack"][1]
    stop(training)


@pytest.mark.timed
def test_too_few_shards_are_said(shell: Shell) -> None:
    training = shell.start("train", "life.py", TEST_HOW="few", TEST_SHARDS="3")
    began = time.monotonic()
    told(training, "2 of 3 shards have joined")
    told(training, "or train with --shards 2")
    assert time.monotonic() - began < 15  # of which it may take 5 to start
    assert "scar up --shards 3" in shell.run("status")
    assert "2 of 3 shards have joined" in shell.run("doctor", code=1)
    stop(training)


def test_sys_exit_ends_the_training_and_shows_where(shell: Shell) -> None:
    shown = shell.run("train", "life.py", code=1, TEST_HOW="exits")
    assert "worker-0 ended with exit code 1" in shown
    assert "sys.exit(3)" in shown
    assert "SystemExit: 3" in shown


def test_a_process_that_vanishes_ends_the_training_too(shell: Shell) -> None:
    shown = shell.run("train", "life.py", code=1, TEST_HOW="vanishes")
    assert "worker-0 ended with exit code 1" in shown
    assert "it left no traceback" in shown


def test_exit_0_before_the_end_finishes_nothing(shell: Shell) -> None:
    shown = shell.run("train", "life.py", code=1, TEST_HOW="early")
    assert "worker-1 | sys.exit(0) was called before the work was done" in shown
    assert "all workers have ended before their work was done" in shown
    assert shell.json("status")["finished"] is None


def test_prints_are_shown_with_names_and_only_those_of_this_job(shell: Shell) -> None:
    first = shell.run("train", "life.py", TEST_HOW="first").splitlines()
    assert [line for line in first if line.startswith("worker-1 | ")] == [
        f"worker-1 | clock {clock}" for clock in range(20)
    ]
    assert not any("service.started" in line for line in first)
    second = shell.run("train", "life.py", TEST_HOW="nan").splitlines()
    assert [line for line in second if line.startswith("worker-0 | ")] == [
        f"worker-0 | clock {clock}" for clock in range(20)
    ]
    assert sum("the loss is nan since clock 0" in line for line in second) == 1
    assert "worker-0 | " not in shell.run("train", "life.py", "--quiet", TEST_HOW="quiet")
    assert "finished, saved as manifest" in shell.run("status")
