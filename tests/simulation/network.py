"""The network between hosts: who listens where, how long a message takes, which ways are closed.

A *way* leads from one host to another, in one direction. :class:`tests.simulation.connections.TcpFlow` sends
again what a way has lost; :meth:`Network.send`, for messages without a connection, does not.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from tests.simulation.rpc_faults import RpcFaults
from tests.simulation.scheduler import Host, Scheduler

FASTEST, MEAN = 0.0001, 0.0005  # seconds for a message
ANYBODY = "*"  # in the place of a host's name
Way = tuple[str, str]  # from, to: names of hosts


class Listener(Protocol):
    """What is bound to an address."""

    host: Host
    listening: bool


@dataclass
class Weather:
    """How bad the network is: probabilities for one message; ``late``: mean seconds of a delay."""

    lost: float = 0.0
    delayed: float = 0.0
    late: float = 0.5


@dataclass
class BadWay:
    """What is wrong with a way: seconds for each message, their spread, bytes in a second, losses."""

    delay: float = 0.0
    jitter: float = 0.0
    rate: float = math.inf
    lost: float = 0.0
    free: float = 0.0  # when everything before has been sent


class Network:
    """``names``: addresses of the replicas behind a name that several share."""

    def __init__(self, scheduler: Scheduler, seed: int) -> None:
        self.scheduler = scheduler
        self.calm = self.weather = Weather()
        self.names: dict[str, list[str]] = {}
        self.rpc_faults = RpcFaults(scheduler, seed)
        self.random = random.Random(f"network {seed}")
        self._bound: dict[str, Listener] = {}
        self._cut: dict[Way, float] = {}  # until when nothing arrives
        self._bad: dict[Way, BadWay] = {}
        self._gone: dict[Host, None] = {}
        self._records: dict[str, tuple[list[str], float]] = {}  # what names say wrongly, until when
        self._ports = 5000

    # --- addresses and names -------------------------------------------------------------------------------

    def bind(self, listener: Listener, address: str) -> int:
        """The port. Raises RuntimeError, as gRPC does, when it is taken."""
        ip, _, port = address.rpartition(":")
        self._ports += 1
        number = int(port) or self._ports
        key = f"{ip}:{number}"
        bound = self._bound.get(key)
        if bound is not None and bound.host.alive:
            raise RuntimeError(f"{key} is taken")
        self._bound[key] = listener
        return number

    def at(self, address: str) -> Listener | None:
        """Who listens there; None: the connection would be refused."""
        found = self._bound.get(address)
        return found if found is not None and found.listening and found.host.alive else None

    def passes_to(self, source: Host, address: str) -> bool:
        """Do messages go from this host to an address and back?"""
        found = self._bound.get(address)
        if found is not None:
            return self.reaches(source, found.host) and self.reaches(found.host, source)
        return self._open(source.name, ANYBODY) and self._open(ANYBODY, source.name)

    def replicas(self, target: str) -> list[str]:
        """What a look at a name says: a headless service names processes that live."""
        if target.startswith("ipv4:"):
            return target.removeprefix("ipv4:").split(",")
        wrong, until = self._records.get(target, ([], 0.0))
        if self.scheduler.now < until:
            return wrong
        known = self.names.get(target)
        return [target] if known is None else [one for one in known if self._lives(one)]

    def listeners(self, host: Host) -> list[Listener]:
        return [one for one in self._bound.values() if one.host is host]

    def _lives(self, address: str) -> bool:
        found = self._bound.get(address)
        return found is None or found.host.alive

    def misname(self, target: str, addresses: list[str], seconds: float) -> None:
        """For so long a name says this: records that are old, or none."""
        self.scheduler.record(f"misname {target} {addresses} {seconds:.3f}")
        self._records[target] = addresses, self.scheduler.now + seconds

    # --- what goes wrong -----------------------------------------------------------------------------------

    def cut(self, source: str, target: str, seconds: float) -> None:
        """From one host to another, in this direction only; either may be :data:`ANYBODY`."""
        self.scheduler.record(f"cut {source} > {target} {seconds:.3f}")
        until = self.scheduler.now + seconds
        self._cut[source, target] = max(until, self._cut.get((source, target), 0.0))
        self.scheduler.at(until, partial(self._mend, (source, target)))

    def _mend(self, way: Way) -> None:
        if self._cut.get(way, math.inf) <= self.scheduler.now:
            del self._cut[way]

    def isolate(self, name: str, seconds: float) -> None:
        """Nothing reaches this host, and it reaches nobody."""
        self.cut(name, ANYBODY, seconds)
        self.cut(ANYBODY, name, seconds)

    def vanish(self, host: Host) -> None:
        """As when the power fails: its process is gone, and no kernel says so."""
        self._gone[host] = None
        self.scheduler.crash(host)

    def worsen(self, source: str, target: str, bad: BadWay, seconds: float) -> None:
        """For so long the way is this bad; either may be :data:`ANYBODY`."""
        self.scheduler.record(f"worsen {source} > {target} {bad} {seconds:.3f}")
        self._bad[source, target] = bad
        self.scheduler.at(self.scheduler.now + seconds, partial(self._repair, (source, target), bad))

    def _repair(self, way: Way, bad: BadWay) -> None:
        if self._bad.get(way) is bad:
            del self._bad[way]

    # --- messages ------------------------------------------------------------------------------------------

    def reaches(self, source: Host, target: Host) -> bool:
        if self._gone and (source in self._gone or target in self._gone):
            return False
        return not self._cut or self._open(source.name, target.name)

    def _open(self, source: str, target: str) -> bool:
        ways = ((source, target), (source, ANYBODY), (ANYBODY, target))
        return all(self._cut.get(way, 0.0) <= self.scheduler.now for way in ways)

    def travel(self, source: Host, target: Host, size: int = 0) -> float:
        """Seconds that a message of so many bytes takes; inf: it is lost."""
        draw, weather = self.random.random(), self.weather
        delay = FASTEST - math.log(1.0 - self.random.random()) * MEAN
        if ((self._gone or self._cut) and not self.reaches(source, target)) or draw < weather.lost:
            return math.inf
        if draw < weather.lost + weather.delayed:
            delay += self.random.expovariate(1 / weather.late)
        return self._badly(source.name, target.name, delay, size) if self._bad else delay

    def _badly(self, source: str, target: str, delay: float, size: int) -> float:
        for way in ((source, target), (source, ANYBODY), (ANYBODY, target)):
            if (bad := self._bad.get(way)) is not None:
                if self.random.random() < bad.lost:
                    return math.inf
                now = self.scheduler.now
                bad.free = max(bad.free, now) + size / bad.rate
                delay += bad.delay + self.random.uniform(0.0, bad.jitter) + bad.free - now
        return delay

    def send(self, source: Host, target: Host, deliver: Callable[[], None], after: float = 0.0) -> float:
        """Deliver once, and not before time ``after``, when the message before it arrives.

        Returns when; inf: never, it is lost.
        """
        delay = self.travel(source, target)
        if after == math.inf or not source.alive or delay == math.inf:
            return math.inf
        arrives = max(after, self.scheduler.now + delay)
        self.scheduler.at(arrives, deliver)
        return arrives
