"""Where a comparison runs: processes of this machine, or a release on Kubernetes. Both start one job and kill by name."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from scar.tables import Job
from scar_kube.faults import send
from scar_kube.release import Release
from scar_kube.training import Training, Work
from scar_kube.where import Where
from scar_local import LocalCluster
from scar_runtime.status import ClusterStatus

FILE = Path(__file__).with_name("train.py")


class Running(Protocol):
    """A job that is being trained."""

    def status(self, since_clock: int) -> ClusterStatus: ...

    def kill(self, name: str) -> None: ...

    def broken(self) -> list[str]:
        """Workers that ended and do not come back, in words."""
        ...


class _Local:
    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster

    def status(self, since_clock: int) -> ClusterStatus:
        return self._cluster.status(since_clock=since_clock)

    def kill(self, name: str) -> None:
        self._cluster.kill(name)

    def broken(self) -> list[str]:
        ended = [one for one in self._cluster.processes() if one.component == "worker" and one.code and one.final]
        return [f"{one.name} ended with exit code {one.code}" for one in ended]


class _Pods:
    def __init__(self, release: Release, training: Training) -> None:
        self._release, self._training = release, training
        self._observer = release.observer()

    def status(self, since_clock: int) -> ClusterStatus:
        return self._observer.read(since_clock=since_clock)

    def kill(self, name: str) -> None:
        send(self._release, name, "KILL")

    def broken(self) -> list[str]:
        return [f"{one.name} has failed" for one in self._training.processes() if one.final and one.code]


@contextmanager
def training(job: Job, where: Where | None) -> Iterator[Running]:
    """The job on a cluster of its own, or (``where``) on a release, whose number of shards counts then."""
    if where is None:
        with tempfile.TemporaryDirectory(prefix="scar-compare-") as home, LocalCluster(home, shards=job.shards) as cluster:
            cluster.start_job(job)
            cluster.start_workers(FILE, job.workers)
            yield _Local(cluster)
            cluster.stop(checkpoint=False)
        return
    with Release.find(where) as release:
        pods = Training(release, Work(replace(job, shards=release.shards()), FILE))
        pods.begin(False)
        try:
            yield _Pods(release, pods)
        finally:
            pods.end()
