"""Machines and networks: clusters of workers, servers and storage (the paper's figure 10).

Every node has a link of its own, with full bandwidth in each direction, to the backbone of its cluster, which
both directions share; that is what SimGrid's ``<cluster>`` is. Workers and servers meet at a router without
limits. Checkpoints travel on a network of their own, whose narrow part is the storage cluster.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

from scar.errors import ConfigError
from scar_compare.trial_plans import recorded_as

MB = 1e6
GB = 1e9
TB = 1e12


def check_fields(
    owner: Any, positive: tuple[str, ...], whole: tuple[str, ...] = (), nonnegative: tuple[str, ...] = ()
) -> None:
    """Raises :class:`ConfigError` that names the first field of a dataclass that is invalid."""
    for name in positive + whole + nonnegative:
        value = getattr(owner, name)
        kind = type(owner).__name__
        if not isfinite(value) or value < 0 or (value == 0 and name not in nonnegative):
            wanted = "0 or more" if name in nonnegative else "more than 0"
            raise ConfigError(f"{kind}.{name} is {value}", f"Give a finite number, {wanted}")
        if name in whole and value != int(value):
            raise ConfigError(f"{kind}.{name} is {value}", "Give a whole number")


@recorded_as("Cluster")
@dataclass(frozen=True)
class NodeCluster:
    """``nodes`` of one kind. Bandwidths in bytes a second, latencies in seconds."""

    nodes: int
    bandwidth: float
    latency: float
    backbone: float
    backbone_latency: float

    def __post_init__(self) -> None:
        check_fields(self, ("bandwidth", "backbone"), ("nodes",), ("latency", "backbone_latency"))


@dataclass(frozen=True)
class Platform:
    """``clusters`` of ``workers`` each, one of ``servers``, one of ``storage``.

    ``disk``: bytes a second of a storage node.
    """

    clusters: int
    workers: NodeCluster
    servers: NodeCluster
    storage: NodeCluster
    disk: float = 10 * GB

    def __post_init__(self) -> None:
        check_fields(self, ("disk",), ("clusters",))

    @property
    def worker_nodes(self) -> int:
        return self.clusters * self.workers.nodes

    def with_storage(self, bandwidth: float) -> Platform:
        """Another bandwidth to storage, bytes a second. Its nodes share it evenly, as in tables 2 and 3."""
        cluster = replace(self.storage, backbone=bandwidth, bandwidth=bandwidth / self.storage.nodes)
        return replace(self, storage=cluster)

    def with_bandwidth(self, factor: float) -> Platform:
        """The same with ``factor`` times the bandwidth between workers and servers."""
        return replace(
            self,
            workers=_scale_bandwidth(self.workers, factor),
            servers=_scale_bandwidth(self.servers, factor),
        )


def _scale_bandwidth(cluster: NodeCluster, factor: float) -> NodeCluster:
    return replace(cluster, bandwidth=cluster.bandwidth * factor, backbone=cluster.backbone * factor)


@recorded_as("Training")
@dataclass(frozen=True)
class TrainingLoad:
    """What is trained (the paper's table 1).

    ``compute_seconds`` of an iteration; ``start_seconds`` until a new node runs, which include those
    until the loss is noticed.
    """

    iterations: int = 200
    compute_seconds: float = 100.0
    model_bytes: float = 1 * GB
    start_seconds: float = 5.0

    def __post_init__(self) -> None:
        check_fields(self, ("compute_seconds", "model_bytes"), ("iterations",), ("start_seconds",))


_WIDE = NodeCluster(nodes=100, bandwidth=5 * GB, latency=500e-6, backbone=500 * GB, backbone_latency=500e-6)
_HALF = replace(_WIDE, bandwidth=2.5 * GB, backbone=250 * GB)
_WORKERS = NodeCluster(nodes=100, bandwidth=125 * MB, latency=50e-6, backbone=5 * GB, backbone_latency=500e-6)

TABLE_2 = Platform(clusters=100, workers=_WORKERS, servers=_WIDE, storage=_WIDE)
TABLE_3 = Platform(clusters=100, workers=replace(_WORKERS, backbone=2.5 * GB), servers=_HALF, storage=_HALF)
