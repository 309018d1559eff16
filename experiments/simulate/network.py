"""What workers do between two barriers, and how long all of them take.

A worker follows a plan: steps, one after the other, each a transfer with all servers at once. Workers with
the same plan in clusters that look the same are one kind, so the work depends on how many differ, not on how
many there are.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from experiments.simulate.fairness import BANDWIDTH_FACTOR, CROSS_TRAFFIC, NetworkPath
from experiments.simulate.platform import NodeCluster, Platform
from experiments.simulate.transfers import Cut, Flow, arrival_seconds

Direction = Literal["push", "pull"]
BACK: dict[Direction, Direction] = {"push": "pull", "pull": "push"}
BOTH_WAYS = 1 + CROSS_TRAFFIC  # of a link that both directions share
SERVERS = "servers"


@dataclass(frozen=True, order=True)
class TransferStep:
    """``bytes`` from or to the servers, in equal parts.

    It begins ``wait`` seconds after the step before, not before second ``release``.
    """

    direction: Direction
    bytes: float
    wait: float = 0.0
    release: float = 0.0


TransferPlan = tuple[TransferStep, ...]


@dataclass(frozen=True, order=True)
class Outage:
    """A backbone is down from second ``begin`` to ``end``.

    ``cluster``: the number of a cluster of workers, or -1 for the servers.
    """

    cluster: int
    begin: float
    end: float


@dataclass(frozen=True)
class _Kind:
    """``count`` clusters of workers that look alike.

    ``plans``: how many workers follow which; ``cuts``: when they are cut off.
    """

    plans: tuple[tuple[TransferPlan, int], ...]
    cuts: tuple[tuple[float, float], ...]
    count: int


def exchange_seconds(
    platform: Platform,
    usual: TransferPlan,
    others: Mapping[int, TransferPlan] | None = None,
    outages: Sequence[Outage] = (),
) -> float:
    """Seconds until all workers have finished their transfers.

    They follow ``usual``, or the plan that ``others`` has for their number.

    Raises :class:`ConfigError` when an outage never ends.
    """
    cuts = tuple(Cut(SERVERS, outage.begin, outage.end) for outage in outages if outage.cluster < 0)
    return _simulated_seconds(platform, _cluster_kinds(platform, usual, others or {}, outages), cuts)


@lru_cache(maxsize=4096)  # most iterations look like another one
def _simulated_seconds(platform: Platform, kinds: tuple[_Kind, ...], servers_cut: tuple[Cut, ...]) -> float:
    flows: list[Flow] = []
    rooms = {
        SERVERS: _link_room(platform.servers.backbone),
        **_two_ways("server", platform.servers.bandwidth),
    }
    cuts = list(servers_cut)
    for number, kind in enumerate(kinds):
        backbone = f"backbone {number}"
        rooms[backbone] = _link_room(platform.workers.backbone)
        cuts += [Cut(backbone, *cut) for cut in kind.cuts]
        for place, (plan, nodes) in enumerate(kind.plans):
            link = f"worker {number} {place}"
            rooms |= _two_ways(link, platform.workers.bandwidth)
            for step in plan:
                after = len(flows) - 1 if step is not plan[0] else -1
                loads = _link_loads(platform, step.direction, link, backbone, nodes, kind.count)
                part = step.bytes / platform.servers.nodes
                flows.append(Flow(part, _network_path(platform), loads, step.wait, step.release, after))
    return max(arrival_seconds(flows, rooms, cuts), default=0.0)


def _cluster_kinds(
    platform: Platform, usual: TransferPlan, others: Mapping[int, TransferPlan], outages: Sequence[Outage]
) -> tuple[_Kind, ...]:
    plans: dict[int, Counter[TransferPlan]] = defaultdict(Counter)
    cuts: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for worker, plan in others.items():
        plans[worker // platform.workers.nodes][plan] += 1
    for outage in outages:
        if outage.cluster >= 0:
            cuts[outage.cluster].append((outage.begin, outage.end))
    kinds: Counter[tuple[tuple[tuple[TransferPlan, int], ...], tuple[tuple[float, float], ...]]] = Counter()
    for cluster in sorted(plans.keys() | cuts.keys()):
        found = plans[cluster]
        found[usual] += platform.workers.nodes - found.total()
        kinds[tuple(sorted((+found).items())), tuple(sorted(cuts[cluster]))] += 1
    kinds[((usual, platform.workers.nodes),), ()] += platform.clusters - kinds.total()
    return tuple(_Kind(alike, cut, count) for (alike, cut), count in kinds.items() if count)


def _network_path(platform: Platform) -> NetworkPath:
    workers = platform.workers
    servers = platform.servers
    return NetworkPath(
        (workers.bandwidth, workers.backbone, servers.backbone, servers.bandwidth),
        (workers.latency, workers.backbone_latency, servers.backbone_latency, servers.latency),
    )


def _link_loads(
    platform: Platform, way: Direction, link: str, backbone: str, nodes: int, clusters: int
) -> dict[str, float]:
    """Of ``nodes`` workers in each of ``clusters``, each of which has a flow with every server."""
    servers = platform.servers.nodes
    return {
        f"{link} {way}": servers,
        f"{link} {BACK[way]}": servers * CROSS_TRAFFIC,
        backbone: nodes * servers * BOTH_WAYS,
        SERVERS: clusters * nodes * servers * BOTH_WAYS,
        f"server {way}": clusters * nodes,
        f"server {BACK[way]}": clusters * nodes * CROSS_TRAFFIC,
    }


def _link_room(bandwidth: float) -> float:
    return BANDWIDTH_FACTOR * bandwidth


def _two_ways(link: str, bandwidth: float) -> dict[str, float]:
    return {f"{link} push": _link_room(bandwidth), f"{link} pull": _link_room(bandwidth)}


def storage_seconds(storage: NodeCluster, disk: float, nodes: int, each: float) -> float:
    """Seconds in which ``nodes`` write ``each`` bytes to storage at once; reading takes as long.

    The bytes are striped over all nodes of the storage.

    Files are streamed, so the disks are one more link, ``disk`` bytes a second of a storage node.
    """
    path = NetworkPath((storage.backbone, storage.bandwidth), (storage.backbone_latency, storage.latency))
    loads = {"backbone": nodes * storage.nodes * BOTH_WAYS, "link": float(nodes), "disk": float(nodes)}
    rooms = {"backbone": _link_room(storage.backbone), "link": _link_room(storage.bandwidth), "disk": disk}
    return arrival_seconds([Flow(each / storage.nodes, path, loads)], rooms)[0]
