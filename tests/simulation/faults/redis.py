"""What happens to Redis."""

from __future__ import annotations

import random
from typing import Any

from tests.simulation.cluster import Cluster
from tests.simulation.faults.hosts import REDIS
from tests.simulation.faults.kind import DrawAmount, FaultKind, choose_between, lasting, sudden
from tests.simulation.plan import RunShape, SimulatedFault
from tests.simulation.redis_server import RedisServer

FAR = 24 * 3600.0  # seconds, for all keys to expire


def _server(cluster: Cluster) -> RedisServer:
    return cluster.world.redis[cluster.redis]


def _redis(_draw: random.Random, _shape: RunShape) -> str:
    return REDIS


def _flush(cluster: Cluster, _fault: SimulatedFault) -> None:
    _server(cluster).restore(({}, {}))


def _begin_empty(cluster: Cluster, fault: SimulatedFault) -> None:
    _flush(cluster, fault)
    _server(cluster).troubles.begin("refused")


def _end_refused(cluster: Cluster, _fault: SimulatedFault) -> None:
    _server(cluster).troubles.end("refused")


def _expire(cluster: Cluster, _fault: SimulatedFault) -> None:
    _server(cluster).host.skew += FAR


def _expire_no_more(cluster: Cluster, _fault: SimulatedFault) -> None:
    _server(cluster).host.skew -= FAR


def _lag(cluster: Cluster, fault: SimulatedFault) -> None:
    """What is written from now on does not reach the replica, which takes over at the end."""
    server, scheduler = _server(cluster), cluster.world.scheduler
    taken: Any = server.snapshot()

    def fail_over() -> None:
        scheduler.record("redis fails over")
        server.restore(taken)

    scheduler.at(scheduler.now + fault.seconds, fail_over)


def _trouble(
    name: str,
    rows: tuple[str, ...],
    trouble: str,
    longest: float = 30.0,
    amount: DrawAmount = lambda _draw: 1.0,
) -> FaultKind:
    """One that the server has for a while."""

    def begin(cluster: Cluster, fault: SimulatedFault) -> None:
        _server(cluster).troubles.begin(trouble, fault.amount)

    def end(cluster: Cluster, fault: SimulatedFault) -> None:
        _server(cluster).troubles.end(trouble, fault.amount)

    return FaultKind(name, rows, lasting(_redis, 0.2, longest, amount), begin, end)


KINDS: tuple[FaultKind, ...] = (
    _trouble("redis-away", ("R1",), "refused", 120.0),
    FaultKind("redis-restarted-empty", ("R1",), lasting(_redis, 0.2, 30.0), _begin_empty, _end_refused),
    FaultKind("redis-flushed", ("R2",), sudden(_redis), _flush),
    FaultKind("redis-expired", ("R2", "T1"), lasting(_redis, 0.2, 10.0), _expire, _expire_no_more),
    FaultKind("redis-failover", ("R4",), lasting(_redis, 0.2, 30.0), _lag),
    _trouble("redis-silent", ("R3",), "silent", 60.0),
    _trouble("redis-late", ("R3",), "late", 30.0, choose_between(0.05, 3.0)),
    _trouble("redis-readonly", ("R3",), "readonly"),
    _trouble("redis-full", ("R3",), "full"),
    _trouble("redis-misconf", ("R3",), "misconf"),
    _trouble("redis-loading", ("R1", "R3"), "loading"),
    _trouble("redis-denied", ("R5",), "denied"),
    _trouble("redis-garbled", ("R3",), "garbled", 30.0, choose_between(0.05, 1.0)),
)
