"""Functions of a program train on a cluster: with a failure in the middle, with one of their own, and as the
README has it.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import scar
from scar.errors import DeadlineExceeded, JobExists, TrainingFailed
from scar_admin.status import ClusterStatus
from scar_local import LocalCluster
from tests.framework.cluster import TIMEOUT

README = Path(__file__).resolve().parents[2] / "README.md"
LIMIT = 12
HOLD = 6  # the clock that nobody ends before the test says so
JOB = scar.Job("function", [scar.Table("w", (12, 2), rule=scar.add())], workers=2)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with scar.LocalCluster(tmp_path / "home", shards=3, respawn_delay=0.1) as cluster:
        yield cluster


def train(worker: scar.Worker) -> None:
    for clock in worker.clocks(limit=LIMIT):
        worker.push("w", np.full((12, 2), 1 + clock, np.float32))
        worker.report(1 / (1 + clock))


def raises(worker: scar.Worker) -> None:
    for _ in worker.clocks(limit=3):
        worker.push("w", np.zeros((12, 2), np.float32))
    print("before it raises")  # noqa: T201
    raise ValueError("of the user")


def leaves(worker: scar.Worker) -> None:
    for _ in worker.clocks(limit=10**9):
        sys.exit(0)


def never_ends(worker: scar.Worker) -> None:
    for _ in worker.clocks(limit=10**9):
        worker.push("w", np.zeros((12, 2), np.float32))


def interrupt(status: ClusterStatus) -> None:
    """As Ctrl-C in the middle of the training."""
    if status.clock >= 5:
        raise KeyboardInterrupt


def working(cluster: LocalCluster) -> list[str]:
    return [one.name for one in cluster.processes() if one.component == "worker" and one.alive]


def test_a_shard_dies_in_the_middle_of_a_function(cluster: LocalCluster, tmp_path: Path) -> None:
    go = tmp_path / "go"

    def held(worker: scar.Worker) -> None:
        for clock in worker.clocks(limit=LIMIT):
            while clock == HOLD and not go.exists():
                time.sleep(0.01)
            worker.push("w", np.full((12, 2), 1 + clock, np.float32))
            worker.report(1 / (1 + clock))

    def kill_once(status: ClusterStatus) -> None:
        if status.clock == HOLD and not go.exists():
            cluster.kill("ps-1")
            go.touch()

    result = cluster.train(JOB, held, timeout=TIMEOUT, watch=kill_once)
    assert result.model["w"].shape == (12, 2)
    assert result.history[LIMIT - 1] == pytest.approx(2 / LIMIT)
    assert sorted(result.history.values(), reverse=True) == list(result.history.values())
    assert "ps-1" in [member.split("@")[0] for record in result.ledger for member in record.members]


def test_an_exception_comes_with_its_traceback_and_another_job_trains(
    cluster: LocalCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    line = raises.__code__.co_firstlineno + 4
    with pytest.raises(TrainingFailed, match="ValueError: of the user") as caught:
        cluster.train(JOB, raises, timeout=TIMEOUT)
    assert f'File "{__file__}", line {line}, in raises' in str(caught.value)
    assert " | before it raises\n" in capsys.readouterr().out
    assert working(cluster) == []
    with pytest.raises(JobExists, match="resume=True"):
        cluster.train(JOB, train, timeout=TIMEOUT)
    result = cluster.train(replace(JOB, name="another"), train, timeout=TIMEOUT)
    np.testing.assert_array_equal(result.model["w"], np.full((12, 2), LIMIT * (LIMIT + 1), np.float32))
    assert result.history[LIMIT - 1] == pytest.approx(2 / LIMIT)


def test_an_interrupt_a_deadline_and_an_early_exit_leave_no_worker(cluster: LocalCluster) -> None:
    with pytest.raises(KeyboardInterrupt):
        cluster.train(JOB, never_ends, timeout=TIMEOUT, watch=interrupt)
    assert working(cluster) == []
    with pytest.raises(DeadlineExceeded, match="the end of the training"):
        cluster.train(JOB, never_ends, resume=True, timeout=0.1)
    assert working(cluster) == []
    with pytest.raises(TrainingFailed, match="before their work was done"):
        cluster.train(JOB, leaves, resume=True, timeout=TIMEOUT)
    assert working(cluster) == []


def test_the_script_of_the_readme_runs(tmp_path: Path) -> None:
    """It has no `if __name__ == "__main__"`, and needs none."""
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)
    [text] = [one for one in blocks if "cluster.train" in one]
    script = tmp_path / "line.py"
    script.write_text(text + "assert np.allclose(result.model['w'], np.arange(8), atol=0.01), result\n")
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
