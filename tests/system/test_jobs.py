"""One cluster, one job after the other: what was learned stays, and the shards start anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import scar
from scar.errors import JobExists, JobNotFound
from scar_local import LocalCluster
from tests.framework.cluster import TIMEOUT

TRAIN = """
import numpy as np, scar
job = scar.Job({name!r}, [scar.Table("w", (12, 2), rule=scar.add())], shards=2, workers=1)
def train(worker):
    for _ in worker.clocks(limit={limit}):
        worker.push("w", np.ones((12, 2), np.float32))
        worker.report(1.0)
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path / "home", shards=2, respawn_delay=0.1) as cluster:
        yield cluster


def begin(cluster: LocalCluster, name: str, limit: int, resume: bool = False) -> None:
    file = cluster.directory / f"{name}-{limit}.py"
    file.write_text(TRAIN.format(name=name, limit=limit))
    cluster.start_job(scar.load_job(str(file))[0], resume)
    cluster.start_workers(file, 1)


def finish(cluster: LocalCluster) -> None:
    assert set(cluster.wait(TIMEOUT).values()) == {0}
    cluster.until(
        lambda status: status.epoch is not None and not status.epoch.workers,
        TIMEOUT,
        "the worker to have left",
    )


def value(cluster: LocalCluster) -> float:
    with scar.connect(cluster.endpoints.recovery_address, timeout=TIMEOUT) as reader:
        values = reader.pull("w")
    assert np.unique(values).size == 1
    return float(values[0, 0])


def test_jobs_follow_each_other_and_the_first_can_go_on(cluster: LocalCluster) -> None:
    begin(cluster, "first", 5)
    finish(cluster)
    lives = cluster.status().epoch
    begin(cluster, "second", 3)
    finish(cluster)
    assert value(cluster) == 3.0
    begin(cluster, "first", 7, resume=True)
    finish(cluster)
    assert value(cluster) == 7.0
    status = cluster.status()
    assert status.failures == ()  # an end is no failure
    assert lives is not None
    assert status.epoch is not None
    assert status.epoch.number > lives.number
    assert not {m.incarnation for m in lives.shards} & {m.incarnation for m in status.epoch.shards}


def test_a_job_in_training_is_not_ended(cluster: LocalCluster) -> None:
    begin(cluster, "first", 1_000_000)
    cluster.until(lambda status: status.clock > 0, TIMEOUT, "training")
    other = scar.Job("second", [scar.Table("w", 4)], shards=2)
    with pytest.raises(JobExists, match="worker-0 train it"):
        cluster.start_job(other)
    cluster.kill("worker-0", respawn=False)
    cluster.until(
        lambda status: status.epoch is not None and not status.epoch.workers, TIMEOUT, "the worker's death"
    )
    with pytest.raises(JobNotFound):  # what is wrong with the new job is said before the old one ends
        cluster.start_job(other, resume=True)
    status = cluster.status()
    assert status.job is not None
    assert status.job.name == "first"
    assert len(status.shards) == 2
