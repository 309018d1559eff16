"""What happens to messages between hosts."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import partial

from tests.simulation.cluster import COORDINATORS, Cluster
from tests.simulation.faults.kind import FaultKind, any_member, lasting, sudden
from tests.simulation.network import ANYBODY, BadWay
from tests.simulation.plan import DrawFault, RunShape, SimulatedFault
from tests.simulation.rpc import Server

STORE = "store"  # name of its host
SHORTEST, LONGEST = 0.3, 45.0  # seconds of a partition
BETWEEN = ">"  # separates the two ends in a target
ALL = "all"


def any_pair(draw: random.Random, shape: RunShape) -> str:
    return BETWEEN.join(draw.sample(shape.members, 2))


def data_path(draw: random.Random, shape: RunShape) -> str:
    """A worker and one of its shards; everybody else sees both."""
    return f"{draw.choice(shape.worker_names)}{BETWEEN}{draw.choice(shape.shard_names)}"


def _half(draw: random.Random, shape: RunShape) -> str:
    """Members of the smaller half; Redis and the store may be on either side."""
    everybody = [*shape.members, STORE, "redis"]
    return ",".join(sorted(draw.sample(everybody, draw.randint(1, len(everybody) // 2))))


def _any_name(draw: random.Random, shape: RunShape) -> str:
    return draw.choice(COORDINATORS)


def _host(cluster: Cluster, name: str) -> str:
    if name in (STORE, ANYBODY):
        return name
    return cluster.redis if name == "redis" else f"{cluster.name}/{name}"


def _cut(cluster: Cluster, seconds: float, one: str, other: str, *, back: bool) -> None:
    network = cluster.world.network
    network.cut(_host(cluster, one), _host(cluster, other), seconds)
    if back:
        network.cut(_host(cluster, other), _host(cluster, one), seconds)


@dataclass(frozen=True)
class Partition:
    """``other``: whom the target is cut off from; empty: the target says both. ``there``, ``back``: ways."""

    other: str = ""
    there: bool = True
    back: bool = True

    def __call__(self, cluster: Cluster, fault: SimulatedFault) -> None:
        first, _, second = fault.target.partition(BETWEEN)
        one, other = (first, second or self.other) if self.there else (self.other, first)
        _cut(cluster, fault.seconds, one, other, back=self.there and self.back)


def _split(cluster: Cluster, fault: SimulatedFault) -> None:
    inside = fault.target.split(",")
    everybody = [*cluster.hosts, STORE, "redis"]
    for one in inside:
        for other in everybody:
            if other not in inside:
                _cut(cluster, fault.seconds, one, other, back=True)


def _swizzle(cluster: Cluster, fault: SimulatedFault) -> None:
    """Members are clogged one by one, and unclogged in another order."""
    draw, scheduler = random.Random(f"swizzle {fault}"), cluster.world.scheduler
    for name in draw.sample(sorted(cluster.hosts), draw.randint(1, len(cluster.hosts))):
        begins, ends = sorted(draw.uniform(0.0, fault.seconds) for _ in range(2))
        isolate = partial(cluster.world.network.isolate, _host(cluster, name), ends - begins)
        scheduler.at(scheduler.now + begins, isolate)


@dataclass(frozen=True)
class Worsening:
    """``field``: of :class:`BadWay`, for the ways from and to the target, or for all."""

    field: str

    def __call__(self, cluster: Cluster, fault: SimulatedFault) -> None:
        network = cluster.world.network
        name = ANYBODY if fault.target == ALL else _host(cluster, fault.target)
        for way in {(name, ANYBODY): None, (ANYBODY, name): None}:
            network.worsen(*way, BadWay(**{self.field: fault.amount}), fault.seconds)


def _worsening(lowest: float, highest: float) -> DrawFault:
    """Draws whose ways, or all, and how bad they are, uniform in its logarithm."""

    def draw(random_: random.Random, shape: RunShape) -> tuple[str, float, float]:
        target = ALL if random_.random() < 0.3 else any_member(random_, shape)
        amount = lowest * (highest / lowest) ** random_.random()
        return target, SHORTEST * (LONGEST / SHORTEST) ** random_.random(), amount

    return draw


def _reset(cluster: Cluster, fault: SimulatedFault) -> None:
    for server in cluster.world.network.listeners(cluster.hosts[fault.target]):
        if isinstance(server, Server):
            server.reset_connections()


def _vanish(cluster: Cluster, fault: SimulatedFault) -> None:
    host = cluster.hosts[fault.target]
    if host.alive:
        cluster.world.network.vanish(host)


def _name_nobody(cluster: Cluster, fault: SimulatedFault) -> None:
    cluster.world.network.misname(cluster.names[fault.target], [], fault.seconds)


def _name_the_dead(cluster: Cluster, fault: SimulatedFault) -> None:
    """The name says what it says now, and one address at which nobody has ever been."""
    network, name = cluster.world.network, cluster.names[fault.target]
    network.misname(name, ["10.255.0.1:5000", *network.replicas(name)], fault.seconds)


def _kind(name: str, rows: str, choose: DrawFault, begin: object) -> FaultKind:
    return FaultKind(name, tuple(rows.split()), choose, begin)  # type: ignore[arg-type]


_pair = lasting(any_pair, SHORTEST, LONGEST)
_member = lasting(any_member, SHORTEST, LONGEST)
_name = lasting(_any_name, 1.0, LONGEST)

KINDS = (
    _kind("partition", "N1 N2", _pair, Partition()),
    _kind("one-way-partition", "N3", _pair, Partition(back=False)),
    _kind("isolation", "N4 D3", _member, Partition(other=ANYBODY)),
    _kind("deaf", "N3", _member, Partition(other=ANYBODY, there=False)),
    _kind("mute", "N3", _member, Partition(other=ANYBODY, back=False)),
    _kind("halves", "N4 D3", lasting(_half, SHORTEST, LONGEST), _split),
    _kind("swizzle", "N6", lasting(lambda _draw, _shape: ALL, 2.0, LONGEST), _swizzle),
    _kind("store-partition", "S1", _member, Partition(other=STORE)),
    _kind("redis-partition", "R3", _member, Partition(other="redis")),
    _kind("delay", "N5", _worsening(0.005, 1.0), Worsening("delay")),
    _kind("jitter", "N5", _worsening(0.01, 2.0), Worsening("jitter")),
    _kind("packet-loss", "N5", _worsening(0.01, 0.3), Worsening("lost")),
    _kind("slow-link", "N5 S3", _worsening(2e3, 1e6), Worsening("rate")),
    _kind("connections-reset", "N5", sudden(any_member), _reset),
    _kind("power-loss", "P1 P2 D3", sudden(any_member), _vanish),
    _kind("name-empty", "N8", _name, _name_nobody),
    _kind("name-stale", "N8", _name, _name_the_dead),
)
