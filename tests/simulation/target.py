"""A simulated cluster as chaos knows clusters: its runs, workload and oracles are used as they are."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from scar.tables import Job
from scar_admin.observer import ClusterObserver
from scar_admin.status import ClusterStatus
from scar_chaos import workload
from scar_chaos.core.schedule import FaultKinds
from scar_runtime.store import Store, open_store
from tests.simulation.cluster import Cluster
from tests.simulation.plan import RunShape
from tests.simulation.world import World

TRAIN = Path(workload.__file__)
RECOVERIES = ("recovery-0", "recovery-1")


class SimulatedTarget:
    """A :class:`scar_chaos.targets.base.ChaosTarget`, whose faults come from a plan and not from chaos."""

    def __init__(self, world: World, shape: RunShape) -> None:
        self._world, self._shape = world, shape
        self.host = world.operator.address
        self.listen = f"{self.host}:0"
        self.judges: list[Callable[[], list[str]]] = []  # that find what is wrong at rest
        leases = {"lease_seconds": shape.shard_lease} if shape.shard_lease else {}
        moves = {"traffic_seconds": shape.traffic, "traffic_bytes": 1}
        settings = dict.fromkeys(shape.shard_names, leases) | dict.fromkeys(RECOVERIES, moves)
        self.cluster = Cluster(world, "one", *shape.coordinators, *shape.shard_names, settings=settings)
        others = {kind: self.cluster.names[kind] for kind in ("checkpoint", "detector")}
        self._observer = ClusterObserver(self.recovery, others)
        for member in (*shape.coordinators, *shape.shard_names):
            self.cluster.supervise(member)

    def begin(self, job: Job, environment: Mapping[str, str], resume: bool = False) -> None:
        """Environments belong to processes, and here all of them are one; a run has one workload."""
        os.environ.update(environment)
        self.cluster.start_job(job)
        for member in self._shape.worker_names:
            self.cluster.start(member, train=str(TRAIN), job=job.name)
            self.cluster.supervise(member)

    def end(self) -> None:
        """The process of the simulation ends with the run."""

    @property
    def kinds(self) -> FaultKinds:
        return {}

    @property
    def recovery(self) -> str:
        return self.cluster.names["recovery"]

    @property
    def damaged(self) -> frozenset[str]:
        """Keys, in the job."""
        return frozenset(key.split("/", 2)[2] for key in self._world.bucket.damaged)

    def observed_violations(self) -> list[str]:
        """Asked for at rest."""
        return [words for judge in self.judges for words in judge()]

    def member(self, name: str) -> str:
        return name

    def status(self) -> ClusterStatus:
        return self._observer.read()

    def store(self) -> Store:
        return open_store(self._world.store_url)

    def inject(self, kind: str, name: str, seconds: float) -> None:
        raise NotImplementedError("faults of a simulation come from its plan")

    def heal(self, kind: str, name: str) -> None:
        raise NotImplementedError("faults of a simulation come from its plan")

    def unwell(self) -> list[str]:
        hosts = self.cluster.hosts
        return [f"{name} is down" for name in self._shape.members if not hosts[name].alive]
