"""What chaos is done to. Two exist: processes on this machine (``local``) and a release on Kubernetes (``kube``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from scar.tables import Job
from scar_chaos.schedule import Kinds
from scar_runtime.status import ClusterStatus
from scar_runtime.store import Store


class Target(Protocol):
    """A cluster that can be broken. Faults name their targets shortly: "ps-0", "recovery"; see :meth:`member`.

    ``kinds``: of faults that can be done here, by what they are done to. ``recovery``: address of the recovery coordinator.
    ``listen``, ``host``: where a recorder listens, and under which name workers reach it.
    """

    @property
    def kinds(self) -> Kinds: ...

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

    def member(self, name: str) -> str:
        """Name of a shard or worker in epochs, histories and the ledger."""

    def status(self) -> ClusterStatus:
        """One look at all services."""

    def store(self) -> Store:
        """The store, opened anew: what a fresh process would see."""

    def inject(self, kind: str, name: str) -> None:
        """Break it; returns at once. Nothing to do when it is down already."""

    def heal(self, kind: str, name: str) -> None:
        """End what does not end by itself."""

    def unwell(self) -> list[str]:
        """Processes or pods that are not there or do not run, in words."""
