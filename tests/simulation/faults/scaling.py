"""The cluster grows and shrinks while it trains, as a StatefulSet does that somebody scales: new shards have
the next numbers, and who has to go gets SIGTERM and is not started again.
"""

from __future__ import annotations

import random

from tests.simulation.cluster import Cluster
from tests.simulation.faults.kind import FaultKind, any_shard, lasting
from tests.simulation.plan import RunShape, SimulatedFault

MOST_NEW = 2  # shards that come


def _new_shard(draw: random.Random, shape: RunShape) -> str:
    return f"ps-{shape.shards + draw.randrange(MOST_NEW)}"


def _add(cluster: Cluster, fault: SimulatedFault) -> None:
    cluster.scale_out(fault.target)


def _remove(cluster: Cluster, fault: SimulatedFault) -> None:
    cluster.scale_in(fault.target)


KINDS: tuple[FaultKind, ...] = (
    FaultKind("scale-out", ("K3",), lasting(_new_shard, 2.0, 60.0), _add, _remove, focused=True),
    FaultKind("scale-in", ("K3",), lasting(any_shard, 2.0, 60.0), _remove, _add, focused=True),
)
