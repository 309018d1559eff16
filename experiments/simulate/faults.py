"""When what fails: exponential intervals, drawn once for a run, the same for all strategies.

Each kind of fault has random numbers of its own, so that faults of servers or of the network, or none of them, leave those of
the workers as they are. All nodes of a kind together fail as one Poisson process, and which of them it is is uniform.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Protocol

import numpy as np

from experiments.simulate.platform import Platform, check
from scar.errors import ConfigError

YEAR = 365 * 24 * 3600.0
KINDS = ("workers", "servers", "links")


@dataclass(frozen=True)
class Faults:
    """Mean seconds between failures of one worker, one server and one backbone; infinite: never. ``repair_seconds`` is how long
    a backbone is down."""

    workers: float = 3 * YEAR
    servers: float = inf
    links: float = inf
    repair_seconds: float = 600.0

    def __post_init__(self) -> None:
        check(self, ("repair_seconds",))
        for kind in KINDS:
            if not getattr(self, kind) > 0:
                raise ConfigError(f"Faults.{kind} is {getattr(self, kind)}", "Give mean seconds between failures, more than 0")


@dataclass(frozen=True)
class Strike:
    """One fault: its second, the number of what fails, and two uniform numbers in [0, 1): where in the computation it strikes,
    and how much luck a recovery has that depends on luck."""

    second: float
    number: int
    place: float
    luck: float


class Due(Protocol):
    """A source of faults, asked with growing seconds."""

    def due(self, until: float) -> list[Strike]: ...


class Clock:
    """The faults of one kind, in order of time."""

    def __init__(self, mtbf: float, nodes: int, seed: int, run: int, kind: str) -> None:
        self._random = np.random.default_rng((seed, run, KINDS.index(kind)))
        self._mean = mtbf / nodes
        self._nodes = nodes
        self._next = self._draw(0.0)

    def due(self, until: float) -> list[Strike]:
        """Takes those before second ``until``."""
        found = []
        while self._next.second < until:
            found.append(self._next)
            self._next = self._draw(self._next.second)
        return found

    def _draw(self, since: float) -> Strike:
        interval, place, luck = self._random.exponential(), self._random.random(), self._random.random()
        return Strike(since + interval * self._mean, int(self._random.integers(self._nodes)), place, luck)


def clocks(faults: Faults, platform: Platform, seed: int, run: int) -> tuple[Clock, Clock, Clock]:
    """Of workers, servers, and backbones: 0 is that of the servers, n + 1 that of worker cluster n."""
    return (
        Clock(faults.workers, platform.worker_nodes, seed, run, "workers"),
        Clock(faults.servers, platform.servers.nodes, seed, run, "servers"),
        Clock(faults.links, platform.clusters + 1, seed, run, "links"),
    )
