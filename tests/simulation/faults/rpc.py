"""What happens to calls of one method of the protocol, or of every one."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.simulation.cluster import Cluster
from tests.simulation.faults.kind import FaultKind
from tests.simulation.plan import DrawFault, RunShape, SimulatedFault
from tests.simulation.rpc_faults import EVERY_METHOD, METHODS, RPC_FAULTS

ROWS = {
    "request-lost": "N7",
    "answer-lost": "N7",
    "doubled": "M4 N7",
    "answer-late": "N5",
    "reordered": "M4",
    "refused": "N5",
    "overloaded": "M2",
    "garbled": "M1",
    "answer-cut": "N5 N7",
    "request-cut": "P10",
    "connection-reset": "N5",
}
SHORTEST, LONGEST = 1.0, 30.0  # seconds
SHARES = (0.05, 0.2, 0.5, 1.0)  # of the calls of one method
SHARES_OF_ALL = (0.01, 0.05, 0.2)
LATE = 0.15  # of the fault's seconds, the mean of a delay


def _draw(draw: random.Random, _shape: RunShape) -> tuple[str, float, float]:
    """The amount is the share of the calls."""
    every = draw.random() < 0.3
    share = draw.choice(SHARES_OF_ALL if every else SHARES)
    method = EVERY_METHOD if every else draw.choice(METHODS)
    return method, _duration(draw), share


def _duration(draw: random.Random) -> float:
    return SHORTEST * (LONGEST / SHORTEST) ** draw.random()


def calls_of(*names: str) -> DrawFault:
    """Draws calls of these methods alone ("Push"): of all of them few ever change anything."""
    methods = [method for method in METHODS if method.rpartition("/")[2] in names]

    def draw(random_: random.Random, _shape: RunShape) -> tuple[str, float, float]:
        return random_.choice(methods), _duration(random_), random_.choice(SHARES)

    return draw


@dataclass(frozen=True)
class StrikeCalls:
    kind: str

    def __call__(self, cluster: Cluster, fault: SimulatedFault) -> None:
        world = cluster.world
        until = world.scheduler.now + fault.seconds
        world.network.rpc_faults.afflict(fault.target, self.kind, fault.amount, until, LATE * fault.seconds)


KINDS = tuple(FaultKind(kind, tuple(ROWS[kind].split()), _draw, StrikeCalls(kind)) for kind in RPC_FAULTS)
