"""A comparison on a release on Kubernetes: processes are killed in the pods that have their names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from scar.tables import Job
from scar_admin.status import ClusterStatus
from scar_kube.faults import send_signal
from scar_kube.release import Release
from scar_kube.training import Training, Work
from scar_kube.where import Where


class ReleaseJob:
    """A job on a release of the chart."""

    def __init__(self, release: Release, training: Training) -> None:
        self._release = release
        self._training = training
        self._observer = release.observer()

    def status(self, since_clock: int) -> ClusterStatus:
        return self._observer.read(since_clock=since_clock)

    def kill(self, name: str) -> None:
        send_signal(self._release, name, "KILL")

    def member(self, name: str) -> str:
        return f"{self._release.fullname}-{name}"

    def failed_workers(self) -> list[str]:
        return [f"{one.name} has failed" for one in self._training.processes() if one.final and one.code]


@contextmanager
def train_on_release(job: Job, where: Where, file: Path) -> Iterator[ReleaseJob]:
    """Train the job by this file; the release's number of shards counts."""
    with Release.find(where) as release:
        training = Training(release, Work(replace(job, shards=release.shards()), file))
        training.begin(False)
        try:
            yield ReleaseJob(release, training)
        finally:
            training.end()
