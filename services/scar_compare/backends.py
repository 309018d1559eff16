"""Where a comparison runs: processes of this machine, or a release on Kubernetes.

Both start one job, say how it is, and kill its processes by name.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from scar.tables import Job
from scar_admin.status import ClusterStatus
from scar_kube.where import Where
from scar_local import LocalCluster

TRAINING_FILE = Path(__file__).with_name("training_file.py")


class RunningJob(Protocol):
    """A job that is being trained."""

    def status(self, since_clock: int) -> ClusterStatus:
        """The cluster now, with losses from ``since_clock`` on."""
        ...

    def kill(self, name: str) -> None:
        """SIGKILL to a process."""
        ...

    def member(self, name: str) -> str:
        """Name of a shard or worker in epochs and in the ledger."""
        ...

    def failed_workers(self) -> list[str]:
        """Workers that ended and do not come back, in words."""
        ...


class LocalJob:
    """A job on a cluster of processes of this machine."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster

    def status(self, since_clock: int) -> ClusterStatus:
        return self._cluster.status(since_clock=since_clock)

    def kill(self, name: str) -> None:
        self._cluster.kill(name)

    def member(self, name: str) -> str:
        return name

    def failed_workers(self) -> list[str]:
        ended = [
            one for one in self._cluster.processes() if one.component == "worker" and one.code and one.final
        ]
        return [f"{one.name} ended with exit code {one.code}" for one in ended]


@contextmanager
def train_job(job: Job, where: Where | None) -> Iterator[RunningJob]:
    """Train on a cluster of its own, or (``where``) on a release, whose number of shards counts then."""
    if where is not None:
        from scar_compare.kube_backend import train_on_release  # needs the package kubernetes

        with train_on_release(job, where, TRAINING_FILE) as running:
            yield running
        return
    with (
        tempfile.TemporaryDirectory(prefix="scar-compare-") as home,
        LocalCluster(home, shards=job.shards) as cluster,
    ):
        cluster.start_job(job)
        cluster.start_workers(TRAINING_FILE, job.workers)
        yield LocalJob(cluster)
        cluster.stop(checkpoint=False)
