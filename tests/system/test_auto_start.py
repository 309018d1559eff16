"""Workers to which nobody else says what to train: ``start=auto``, as on a release that was installed with
a training file.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from scar.v1 import worker_pb2, worker_pb2_grpc
from scar.wire.transport import open_channel
from scar_local import ClusterStatus, LocalCluster

FILE = """
import numpy as np
import scar

job = scar.Job("{name}", [scar.Table("w", (8, 2))], workers=7, shards=9)

def train(worker):
    for clock in worker.clocks(limit={clocks}):
        worker.push("w", np.full((8, 2), 1.0 / worker.world_size))
"""
AUTO = {"SCAR_START": "auto", "SCAR_WORKERS": "2", "SCAR_SHARDS": "2"}
SECONDS = 90.0


def write(folder: Path, name: str, clocks: int) -> Path:
    path = folder / f"{name}-{clocks}.py"
    path.write_text(FILE.format(name=name, clocks=clocks))
    return path


def states(status: ClusterStatus) -> dict[str, str]:
    """Worker -> what it says of itself; its address is known from its heartbeats, in whatever epoch it is."""
    found = {}
    for name, view in status.members.items():
        if name.startswith("worker-"):
            with open_channel(view.member.address) as channel:
                try:
                    reply = worker_pb2_grpc.WorkerStub(channel).Status(
                        worker_pb2.WorkerStatusRequest(), timeout=2
                    )
                except grpc.RpcError:
                    continue
                found[name] = reply.state
    return found


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(
        tmp_path / "one", shards=2, store=f"file://{tmp_path / 'store'}", environment=AUTO
    ) as cluster:
        yield cluster


def finished(cluster: LocalCluster, count: int) -> ClusterStatus:
    return cluster.until(
        lambda status: list(states(status).values()) == ["finished"] * count, SECONDS, "the end of training"
    )


def test_workers_start_their_job_and_stay(cluster: LocalCluster, tmp_path: Path) -> None:
    cluster.start_workers(write(tmp_path, "own", 5), 2)
    status = finished(cluster, 2)
    assert status.job is not None
    assert (status.job.name, status.job.workers, status.job.shards) == ("own", 2, 2)
    assert all(process.alive and not process.restarts for process in cluster.processes()), (
        "nobody restarts what stays up"
    )
    cluster.kill("worker-0", signal.SIGTERM)
    cluster.kill("worker-1", signal.SIGTERM)
    assert cluster.wait(SECONDS) == {"worker-0": 0, "worker-1": 0}


def test_the_next_job_waits_for_the_first_and_an_old_one_is_resumed(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    cluster.start_workers(write(tmp_path, "own", 5), 2)
    finished(cluster, 2)
    cluster.start_workers(write(tmp_path, "next", 5), 2)
    finished(cluster, 4)
    assert cluster.status().job.name == "next"
    cluster.start_workers(write(tmp_path, "own", 8), 2)
    status = finished(cluster, 6)
    assert status.job.name == "own"
    assert status.clock >= 5, "it went on, it did not start again"
