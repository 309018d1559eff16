"""Nobody ends by itself without a reason that its exit code names."""

from __future__ import annotations

from scar_chaos.chaos_run import ChaosRun
from tests.simulation.cluster import Cluster

UNEXPECTED = 1  # the exit code of an error for which nothing has another one


class UninvitedEnds:
    """See :class:`tests.simulation.oracles.oracle.Oracle`. Workers end by errors of the user's, too."""

    def watch(self, cluster: Cluster) -> list[str]:
        found = [member for member, code in cluster.ends if code == UNEXPECTED]
        return [f"{member} ended by an unexpected error" for member in found if "worker" not in member]

    def judge(self, _run: ChaosRun, cluster: Cluster) -> list[str]:
        return self.watch(cluster)
