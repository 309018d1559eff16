"""The oracle of a cluster: what is checked in every second, and what at rest."""

from __future__ import annotations

from scar_chaos.chaos_run import ChaosRun
from tests.simulation.cluster import Cluster
from tests.simulation.oracles.at_rest import RestWatch
from tests.simulation.oracles.cluster_truth import ClusterTruth
from tests.simulation.oracles.store_view import outside


class ClusterOracle:
    """See :class:`tests.simulation.oracles.oracle.Oracle`. Of one run, whose first job it looks at."""

    def __init__(self) -> None:
        self._truth: ClusterTruth | None = None
        self._rest: RestWatch | None = None

    def watch(self, cluster: Cluster) -> list[str]:
        with outside(cluster.world.scheduler):
            self._truth = self._truth or ClusterTruth(cluster)
            self._rest = self._rest or RestWatch(cluster, self._truth)
            return self._truth.look()

    def judge(self, run: ChaosRun, cluster: Cluster) -> list[str]:
        status = run.status()
        assert self._rest is not None
        with outside(cluster.world.scheduler):
            return self._rest.judge(status)
