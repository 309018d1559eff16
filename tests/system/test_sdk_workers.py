"""Workers that join by the SDK alone, as in a notebook: they have no address, so nobody can ask whether they
live. A new recovery coordinator takes none of them for dead that is not, and misses one that is.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import scar
from scar.errors import DeadlineExceeded, JobExists, JobNotFound
from scar.wire.timing import TIMING
from scar_local import LocalCluster
from tests.framework.cluster import TIMEOUT

TABLE = scar.Table("w", (16, 4), rule=scar.sgd(1.0))
FASTER = scar.Table("w", (16, 4), rule=scar.sgd(2.0))
PROGRAM = """
import sys, time, numpy, scar
with scar.join(sys.argv[1], sys.argv[2], detector=sys.argv[3]) as worker:
    for _ in worker.clocks():
        worker.pull("w")
        worker.push("w", numpy.full((16, 4), -1, numpy.float32))
        time.sleep(0.02)
"""


@pytest.mark.parametrize(
    ("watched", "killed"),
    [(False, ["recovery-0"]), (True, ["recovery-0"]), (True, ["recovery-0", "detector-0"])],
    ids=["no detector", "recovery", "recovery and detector"],
)
def test_it_outlives_the_recovery_coordinator(tmp_path: Path, watched: bool, killed: Sequence[str]) -> None:
    job = scar.Job("notebook", [TABLE], shards=2, workers=1, consistency="bsp")
    with LocalCluster(tmp_path / "home", shards=2, respawn_delay=0.1) as cluster:
        cluster.start_job(job)
        detector = cluster.address("detector-0") if watched else ""
        with scar.join(cluster.endpoints.recovery_address, "worker-0", detector=detector) as worker:
            struck, led, pushed = 0.0, 0.0, 0
            end = time.monotonic() + TIMEOUT
            for clock in worker.clocks():
                now = time.monotonic()
                assert now < end
                if led and now > led + 2 * TIMING.lease:  # when a suspect would have been declared dead
                    break
                if clock == 30:
                    for name in killed:
                        cluster.kill(name)
                    struck = now
                elif struck and not led:
                    epoch = cluster.status().epoch
                    led = now if epoch is not None and epoch.cause == "leader" else 0.0
                worker.pull("w")
                worker.push("w", np.full((16, 4), -1, np.float32))
                pushed += 1
            status = cluster.status()
            assert status.epoch is not None
            assert [member.name for member in status.epoch.workers] == ["worker-0"]
            assert not status.failures
            np.testing.assert_array_equal(worker.pull("w"), np.full((16, 4), pushed, np.float32))


def test_one_that_no_detector_watches_is_missed_all_the_same(tmp_path: Path) -> None:
    """It does not call the recovery coordinator any more."""
    with trained_by_two(tmp_path, watched=False) as (cluster, workers):
        workers[1].kill()
        lose_one(cluster)


def test_one_that_died_together_with_the_recovery_coordinator_is_missed(tmp_path: Path) -> None:
    with trained_by_two(tmp_path, watched=True) as (cluster, workers):
        workers[1].kill()
        cluster.kill("recovery-0")
        lose_one(cluster)


def test_a_job_is_started_and_resumed_without_a_training_file(tmp_path: Path) -> None:
    job = scar.Job("own", [TABLE], shards=2, workers=1, consistency="bsp")
    with LocalCluster(tmp_path / "home", shards=2) as cluster:
        recovery = cluster.endpoints.recovery_address
        with pytest.raises(JobNotFound):
            scar.start(recovery, job, resume=True)
        assert scar.start(recovery, job) == ""
        assert push_ones(recovery, 7) == 7
        cluster.until(lambda status: status.finished is not None, TIMEOUT, "the end of the job")
        with pytest.raises(JobExists):
            scar.start(recovery, job)
        assert "lr" in scar.start(recovery, replace(job, tables=[FASTER]), resume=True)
        assert push_ones(recovery, 10) == 7 + 2 * 3


def test_nobody_to_start_a_job_is_said_with_the_address() -> None:
    with pytest.raises(DeadlineExceeded, match=r"no recovery coordinator at 127\.0\.0\.1:1 "):
        scar.start("127.0.0.1:1", scar.Job("own", [TABLE]), timeout=0.5)


def push_ones(recovery: str, until: int) -> float:
    """A worker trains to this clock. The value of all elements then."""
    with scar.join(recovery, "worker-0", job="own") as worker:
        for _ in worker.clocks(limit=until):
            worker.push("w", np.full((16, 4), -1, np.float32))
        values = worker.pull("w")
        worker.leave()
    assert len(np.unique(values)) == 1
    return float(values[0, 0])


@contextmanager
def trained_by_two(
    folder: Path, watched: bool
) -> Iterator[tuple[LocalCluster, list[subprocess.Popen[bytes]]]]:
    """A cluster and its workers, processes of their own."""
    job = scar.Job("notebook", [TABLE], shards=2, workers=2, consistency="bsp")
    home = folder / "home"
    with LocalCluster(home, shards=2, respawn_delay=0.1) as cluster:
        cluster.start_job(job)
        detector = cluster.address("detector-0") if watched else ""
        environment = {**os.environ, "SCAR_TOKEN_FILE": str(home / "token")}
        command = [sys.executable, "-c", PROGRAM, cluster.endpoints.recovery_address]
        workers = [
            subprocess.Popen([*command, f"worker-{rank}", detector], env=environment) for rank in range(2)
        ]
        try:
            cluster.until(lambda status: status.clock > 20, TIMEOUT, "some clocks")
            yield cluster, workers
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()


def lose_one(cluster: LocalCluster) -> None:
    """The other one goes on without it."""
    cluster.until(
        lambda status: status.epoch is not None and len(status.epoch.workers) == 1,
        TIMEOUT,
        "an epoch without the dead worker",
    )
    reached = cluster.status().clock
    cluster.until(lambda status: status.clock > reached + 20, TIMEOUT, "the other one to go on")
    [failure] = cluster.status().failures
    assert [member.partition("@")[0] for member in failure.members] == ["worker-1"]
