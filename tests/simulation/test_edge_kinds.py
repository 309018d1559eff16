"""Kinds of faults of hosts, clocks, Redis and the store: they strike what there is, and come to an end."""

from __future__ import annotations

import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.simulation import scheduler
from tests.simulation.bucket import Bucket
from tests.simulation.faults import clocks, hosts, redis, store
from tests.simulation.faults.kind import FaultKind
from tests.simulation.network import Network
from tests.simulation.plan import RunShape, SimulatedFault
from tests.simulation.redis_server import RedisServer
from tests.simulation.scheduler import Host, Scheduler

KINDS = (*hosts.KINDS, *clocks.KINDS, *redis.KINDS, *store.KINDS)
SHAPES = (RunShape(), RunShape(shards=4, workers=3, standby=True))
DRAWS = 20
KEYS = (
    *(f"store/counting/objects/e00000001-ps-{number}-r00000001" for number in range(20)),
    *(f"store/counting/manifests/{number:08d}" for number in (1, 2)),
)


class ClusterDouble:
    """As much of a cluster as faults touch; its processes only wait."""

    def __init__(self, shape: RunShape) -> None:
        self.redis = "redis-one"
        self.held: set[str] = set()
        self.terminated: list[str] = []
        used = Scheduler(1)
        scheduler.use(used)
        self.hosts = {member: used.host(member) for member in shape.members}
        for host in self.hosts.values():
            used.spawn(host, "waits", lambda: used.sleep(1e9))
        network = Network(used, 1)
        server = RedisServer(used.host(self.redis))
        self.world: Any = SimpleNamespace(
            scheduler=used, network=network, bucket=Bucket(network, 1), redis={self.redis: server}
        )
        self.world.bucket.objects.update({key: bytes(range(100)) for key in KEYS})
        server.do("set", "epoch", 7)
        server.do("set", "leader", "me", px=1000)

    def crash(self, member: str) -> None:
        self.world.scheduler.crash(self.hosts[member])

    def terminate(self, member: str) -> None:
        self.terminated.append(member)

    def hold_down(self, member: str) -> None:
        self.held.add(member)

    def release(self, member: str) -> None:
        self.held.discard(member)

    def pass_time(self, seconds: float) -> None:
        used = self.world.scheduler
        used.run(used.spawn(used.host("operator"), "waits", lambda: used.sleep(seconds)), 1e6)

    def state(self) -> Any:
        """What a fault may change."""
        used, server = self.world.scheduler, self.world.redis[self.redis]
        bucket = self.world.bucket
        machines = [*self.hosts.values(), server.host, bucket.host]
        return (
            [self._host_state(host, used.now) for host in machines],
            [sorted(self.held), list(self.terminated), server.snapshot()],
            [bool(server.troubles), bool(bucket.troubles), sorted(bucket.damaged), len(bucket.objects)],
        )

    @staticmethod
    def _host_state(host: Host, now: float) -> tuple[Any, ...]:
        slow = [task.slow for task in host.tasks.values()]
        paused = max(0.0, host.paused_until - now)
        return (host.alive, host.skew, host.rate, host.slow, host.fuse, host.trap, paused, slow)


@pytest.fixture(params=SHAPES, ids=["small", "large"])
def shape(request: pytest.FixtureRequest) -> Iterator[RunShape]:
    found: RunShape = request.param
    yield found
    scheduler.use(scheduler.Nobody())


def drawn(kind: FaultKind, shape: RunShape, seed: int) -> SimulatedFault:
    target, seconds, amount = kind.draw(random.Random(seed), shape)
    return SimulatedFault(kind.name, target, 0.0, seconds, amount)


def test_names_and_rows_are_given() -> None:
    assert len({kind.name for kind in KINDS}) == len(KINDS)
    assert all(kind.rows for kind in KINDS)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_fault_changes_something_and_ends(kind: FaultKind, shape: RunShape) -> None:
    """What it breaks for a while is whole again; what it breaks for good was there."""
    for seed in range(DRAWS):
        fault = drawn(kind, shape, seed)
        cluster: Any = ClusterDouble(shape)
        targets = {*shape.members, hosts.REDIS, store.STORE, clocks.EVERYTHING}
        assert set(fault.target.split("+")) <= targets
        before = cluster.state()
        kind.begin(cluster, fault)
        cluster.pass_time(1e-3)
        assert cluster.state() != before or kind.name in ("redis-failover", *DAMAGES)
        cluster.pass_time(fault.seconds)
        kind.end(cluster, fault)
        cluster.pass_time(1.0)
        assert_over(kind, cluster)


DAMAGES = ("store-flipped", "store-truncated", "store-swapped", "store-removed", "manifest-flipped")


def assert_over(kind: FaultKind, cluster: Any) -> None:
    """Machines that live run as they did, and servers have no trouble."""
    machines, (held, _, _), troubles = cluster.state()
    for alive, skew, rate, slow, fuse, trap, paused, slow_tasks in machines:
        if alive:
            assert (rate, slow, fuse, trap, paused) == (1.0, 0.0, 0, "", 0.0), kind.name
            assert abs(skew) < 0.1, "what a clock has drifted stays"
            assert not any(slow_tasks)
    assert held == []
    assert troubles[:2] == [False, False]


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_known(name: str, shape: RunShape) -> None:
    """An oracle that restores has to know what it cannot ask for."""
    kind = next(kind for kind in store.KINDS if kind.name == name)
    cluster: Any = ClusterDouble(shape)
    objects = cluster.world.bucket.objects
    before = dict(objects)
    kind.begin(cluster, SimulatedFault(name, store.STORE, 0.0, 0.0, 0.5))
    changed = {key for key in before if objects.get(key) != before[key]}
    assert changed <= cluster.world.bucket.damaged
    assert changed or name == "store-swapped"  # all of them hold the same


def test_writes_after_the_replica_lagged_are_lost(shape: RunShape) -> None:
    kind = next(kind for kind in redis.KINDS if kind.name == "redis-failover")
    cluster: Any = ClusterDouble(shape)
    server = cluster.world.redis[cluster.redis]
    kind.begin(cluster, SimulatedFault(kind.name, hosts.REDIS, 0.0, 5.0))
    server.do("set", "epoch", 8)
    assert server.do("get", "epoch") == "8"
    cluster.pass_time(6.0)
    assert server.do("get", "epoch") == "7"
