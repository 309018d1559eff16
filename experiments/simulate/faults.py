"""When what fails: exponential intervals, drawn once for a run, the same for all strategies.

Each kind of fault has random numbers of its own, so that faults of servers or of the network, or none of
them, leave those of the workers as they are. All nodes of a kind together fail as one Poisson process, and
which of them it is is uniform.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Protocol

import numpy as np

from experiments.simulate.platform import Platform, check_fields
from scar.errors import ConfigError

YEAR = 365 * 24 * 3600.0
KINDS = ("workers", "servers", "links")


@dataclass(frozen=True)
class Faults:
    """Mean seconds between failures of one worker, one server and one backbone; infinite: never.

    ``repair_seconds`` is how long a backbone is down.
    """

    workers: float = 3 * YEAR
    servers: float = inf
    links: float = inf
    repair_seconds: float = 600.0

    def __post_init__(self) -> None:
        check_fields(self, ("repair_seconds",))
        for kind in KINDS:
            if not getattr(self, kind) > 0:
                raise ConfigError(
                    f"Faults.{kind} is {getattr(self, kind)}",
                    "Give mean seconds between failures, more than 0",
                )


@dataclass(frozen=True)
class NodeFault:
    """One fault: its second, and the number of what fails.

    Two uniform numbers in [0, 1): ``place`` says where in the computation it strikes, ``luck`` what a
    recovery that depends on chance costs.
    """

    second: float
    number: int
    place: float
    luck: float


class FaultSource(Protocol):
    """A source of faults, asked with growing seconds."""

    def take_due(self, until: float) -> list[NodeFault]: ...


class FaultClock:
    """The faults of one kind, in order of time."""

    def __init__(self, mtbf: float, nodes: int, seed: int, run: int, kind: str) -> None:
        self._random = np.random.default_rng((seed, run, KINDS.index(kind)))
        self._mean = mtbf / nodes
        self._nodes = nodes
        self._next = self._draw_fault(0.0)

    def take_due(self, until: float) -> list[NodeFault]:
        """Takes those before second ``until``."""
        found = []
        while self._next.second < until:
            found.append(self._next)
            self._next = self._draw_fault(self._next.second)
        return found

    def _draw_fault(self, since: float) -> NodeFault:
        interval = self._random.exponential()
        place = self._random.random()
        luck = self._random.random()
        return NodeFault(since + interval * self._mean, int(self._random.integers(self._nodes)), place, luck)


def fault_clocks(
    faults: Faults, platform: Platform, seed: int, run: int
) -> tuple[FaultClock, FaultClock, FaultClock]:
    """Of workers, servers, and backbones: 0 is that of the servers, n + 1 that of worker cluster n."""
    return (
        FaultClock(faults.workers, platform.worker_nodes, seed, run, "workers"),
        FaultClock(faults.servers, platform.servers.nodes, seed, run, "servers"),
        FaultClock(faults.links, platform.clusters + 1, seed, run, "links"),
    )
