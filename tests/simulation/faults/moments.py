"""A coordinator stands still at a moment that matters: what it was about to do, it does when others have
taken over.
"""

from __future__ import annotations

import random

from tests.simulation.cluster import Cluster
from tests.simulation.faults.kind import FaultKind
from tests.simulation.plan import RunShape, SimulatedFault

SENT, DONE = "send PutObject store/counting/", "done PutObject store/counting/"
MOMENTS = {
    "recovery": (f"{SENT}epochs/", f"{DONE}epochs/", f"{SENT}ledger/", f"{SENT}ledger/", f"{SENT}manifests/"),
    "checkpoint": (f"{SENT}manifests/", f"{SENT}manifests/", f"{DONE}manifests/", "/Finish", "/Save"),
}
SHORTEST, LONGEST = 1.5, 90.0  # seconds


def _draw(draw: random.Random, shape: RunShape) -> tuple[str, float, float]:
    kind = draw.choice(sorted(MOMENTS))
    target = f"{kind}-{draw.randrange(1 + shape.standby)}"
    seconds = SHORTEST * (LONGEST / SHORTEST) ** draw.random()
    return target, seconds, float(draw.randrange(len(MOMENTS[kind])))


def _set_trap(cluster: Cluster, fault: SimulatedFault) -> None:
    """``amount``: at which of its moments."""
    host = cluster.hosts[fault.target]
    host.trap = MOMENTS[fault.target.partition("-")[0]][int(fault.amount)]
    host.trap_seconds = fault.seconds


def _take_trap_away(cluster: Cluster, fault: SimulatedFault) -> None:
    host = cluster.hosts[fault.target]
    host.trap = ""
    host.trap_seconds = 0.0


KINDS: tuple[FaultKind, ...] = (
    FaultKind("pause-at-moment", ("C3", "G6", "G16"), _draw, _set_trap, _take_trap_away),
)
