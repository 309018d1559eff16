"""What an oracle is: something that must be true, looked at in every simulated second, or at the end."""

from __future__ import annotations

from typing import Protocol

from scar_chaos.chaos_run import ChaosRun
from tests.simulation.cluster import Cluster


class Oracle(Protocol):
    """Looks into the objects of the one process that all hosts are; it takes no simulated time."""

    def watch(self, cluster: Cluster) -> list[str]:
        """Called in every simulated second, outside of every task: it may neither wait nor call. What is
        wrong, in words.
        """
        ...

    def judge(self, run: ChaosRun, cluster: Cluster) -> list[str]:
        """Called at rest, after each group of faults, by the operator's task. What is wrong, in words."""
        ...
