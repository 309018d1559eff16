"""What chaos is done to: processes on this machine (``local``) or a release (``kubernetes``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from scar.tables import Job
from scar_admin.status import ClusterStatus
from scar_chaos.core.schedule import FaultKinds
from scar_runtime.store import Store


class ChaosTarget(Protocol):
    """A cluster that can be broken. Faults name what they break shortly: "ps-0", "recovery".

    ``kinds``: of faults that can be done here, by what they are done to. ``recovery``: address of the
    recovery coordinator. ``listen``, ``host``: where a recorder listens, and under which name workers reach
    it.
    """

    @property
    def kinds(self) -> FaultKinds: ...

    @property
    def recovery(self) -> str: ...

    @property
    def listen(self) -> str: ...

    @property
    def host(self) -> str: ...

    def begin(self, job: Job, environment: Mapping[str, str], resume: bool = False) -> None:
        """Start the job, and workers that run the workload with this environment."""

    def end(self) -> None:
        """Take the workers away, and whatever was started for the run. The job stays in the store."""

    @property
    def damaged(self) -> frozenset[str]:
        """Keys of the job's objects that a fault has damaged for good."""

    def observed_violations(self) -> list[str]:
        """What happened since the last call that a guarantee forbids, in words."""

    def member(self, name: str) -> str:
        """Name of a shard or worker in epochs, histories and the ledger."""

    def status(self) -> ClusterStatus:
        """One look at all services."""

    def store(self) -> Store:
        """The store, opened again: what a fresh process would see."""

    def inject(self, kind: str, name: str, seconds: float) -> None:
        """Break it, for so long; returns at once. Nothing to do when it is down already."""

    def heal(self, kind: str, name: str) -> None:
        """End what does not end by itself."""

    def unwell(self) -> list[str]:
        """Processes or pods that are not there or do not run, in words."""
