"""A whole cluster in processes: it starts, trains, loses a server, heals, stops, and leaves nothing
behind.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from scar.errors import ConfigError, JobExists
from scar.tables import Checkpoint, Job, Table, add
from scar.v1 import recovery_pb2
from scar_local import ClusterDirectory, ClusterObserver, LocalCluster

pytestmark = pytest.mark.timeout(300)  # many processes, and other tests may run beside them

TRAIN = """
import numpy as np
import scar

job = scar.Job("count", tables=[scar.Table("w", (40, 3), rule=scar.add())], shards=3, workers=2)

def train(worker):
    for clock in worker.clocks(limit=LIMIT):
        worker.pull("w")
        worker.push("w", np.ones((40, 3), np.float32))
        worker.report(1.0 / (1 + clock))
"""
JOB = Job(
    "count", tables=[Table("w", (40, 3), rule=add())], shards=3, workers=2, checkpoint=Checkpoint(period=8)
)


def eventually(condition: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def gone(pid: int) -> bool:
    """No such process, or a dead one that its new parent has not buried yet."""
    listed = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout.strip()
    return not listed or listed.startswith("Z")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("cluster"), shards=3, respawn_delay=0.2) as running:
        running.start_job(JOB)
        yield running


def train_file(folder: Path, limit: int) -> Path:
    path = folder / "count.py"
    path.write_text(TRAIN.replace("LIMIT", str(limit)))
    return path


def test_every_service_runs_and_says_where(cluster: LocalCluster) -> None:
    names = {process.name for process in cluster.processes() if process.state == "running"}
    assert names == {"redis", "recovery-0", "detector-0", "checkpoint-0", "ps-0", "ps-1", "ps-2"}
    addresses = [
        cluster.endpoints.recovery_address,
        cluster.endpoints.checkpoint_address,
        cluster.endpoints.detector_address,
    ]
    assert len({address.rpartition(":")[2] for address in addresses}) == 3
    assert redis.Redis.from_url(cluster.redis_url).ping()
    assert all((cluster.directory / "logs" / f"{name}.log").exists() for name in names)


def test_the_state_file_is_enough_to_look_at_it(cluster: LocalCluster) -> None:
    state = ClusterDirectory(cluster.directory).read()
    assert state is not None
    assert state.job == "count"
    assert {process.pid for process in state.processes} == {process.pid for process in cluster.processes()}
    with ClusterObserver(state.addresses["recovery"], state.addresses) as observer:
        status = observer.read()
    assert status.recovery is not None
    assert status.checkpoint is not None


def test_a_directory_in_use_is_refused(cluster: LocalCluster) -> None:
    with pytest.raises(ConfigError, match="in use by process"):
        LocalCluster(cluster.directory).start()
    assert cluster.processes()


def test_a_job_is_there_only_once(cluster: LocalCluster) -> None:
    cluster.until(lambda status: status.number >= 1 and len(status.shards) == 3, 60, "epoch 1")
    with pytest.raises(JobExists):
        cluster.start_job(JOB)


def test_it_trains_loses_a_server_and_heals(cluster: LocalCluster, tmp_path: Path) -> None:
    names = cluster.start_workers(train_file(tmp_path, 300), 2)
    cluster.until(lambda status: status.clock >= 10, 60, "ten clocks")
    pid = cluster.kill("ps-1")
    assert gone(pid)
    status = cluster.until(lambda status: any(record.epoch for record in status.failures), 60, "the repair")
    assert [key.partition("@")[0] for key in status.failures[0].members] == ["ps-1"]
    assert cluster.wait(60) == dict.fromkeys(names, 0)
    status = cluster.until(lambda status: status.clock == 300, 60, "the last clock")
    assert status.loss == pytest.approx(2 / 300)
    assert next(process.restarts for process in cluster.processes() if process.name == "ps-1") == 1


def test_a_coordinator_keeps_its_address(cluster: LocalCluster) -> None:
    address = cluster.endpoints.detector_address
    pid = cluster.pid("detector-0")
    assert cluster.restart("detector-0") != pid
    assert cluster.endpoints.detector_address == address
    with socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), timeout=5):
        pass


def test_a_paused_process_is_silent_and_comes_back(cluster: LocalCluster) -> None:
    cluster.pause("checkpoint-0")
    with ClusterObserver(
        cluster.endpoints.recovery_address, {"checkpoint": cluster.endpoints.checkpoint_address}, timeout=0.3
    ) as observer:
        assert any("checkpoint does not answer" in problem for problem in observer.read().problems)
        cluster.resume("checkpoint-0")
        eventually(lambda: observer.read().checkpoint is not None)


def test_stopping_ends_every_process_and_is_final(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, shards=1)
    cluster.start()
    pids = [process.pid for process in cluster.processes()]
    cluster.stop()
    cluster.stop()
    assert all(gone(pid) for pid in pids)
    assert not ClusterDirectory(tmp_path).alive()
    with pytest.raises(ConfigError, match="does not run"):
        cluster.kill("ps-0")


def test_it_can_resume_what_another_cluster_left(tmp_path: Path) -> None:
    job = Job("count", tables=[Table("w", (40, 3), rule=add())], shards=1, workers=1)
    with LocalCluster(tmp_path, shards=1) as cluster:
        cluster.start_job(job)
        cluster.start_workers(train_file(tmp_path, 20), 1)
        assert cluster.wait(60) == {"worker-0": 0}
    with LocalCluster(tmp_path, shards=1) as cluster:
        cluster.start_job(job, resume=True)
        status = cluster.until(
            lambda status: status.number > 1 and bool(status.shards), 60, "an epoch of its own"
        )
        assert status.epoch is not None
        assert status.epoch.clock == 20  # the last round, at the stop, has saved everything
        assert cluster.endpoints.recovery.GetJob(recovery_pb2.GetJobRequest(), timeout=20).job.name == "count"


def test_a_service_that_cannot_start_says_why(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, shards=1, shard_settings={"lease_seconds": "soon"})
    with pytest.raises(ConfigError, match=r"ps-0 ended with exit code 2.*SCAR_LEASE_SECONDS"):
        cluster.start()
    assert not ClusterDirectory(tmp_path).alive()


HOLDER = """
import sys, time
from scar_local import LocalCluster
cluster = LocalCluster(sys.argv[1], shards=1)
cluster.start()
print(*(process.pid for process in cluster.processes()), flush=True)
time.sleep(60)
"""


def test_nothing_survives_the_death_of_its_holder(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    pids = [int(pid) for pid in holder.stdout.readline().split()]
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    holder.stdout.close()
    assert len(pids) == 5
    eventually(lambda: all(gone(pid) for pid in pids))
