"""What happens to the store."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.simulation.bucket import Bucket
from tests.simulation.cluster import Cluster
from tests.simulation.faults.kind import DrawAmount, FaultKind, Strike, choose_between, lasting, sudden
from tests.simulation.plan import RunShape, SimulatedFault

STORE = "store"
ROUND = "/objects/e"  # in the keys of what shards save
MANIFEST = "/manifests/"
Damage = Callable[[Bucket, str], None]


def _store(_draw: random.Random, _shape: RunShape) -> str:
    return STORE


def _whole(_draw: random.Random) -> float:
    return 1.0


def _trouble(
    trouble: str,
    rows: tuple[str, ...],
    amount: DrawAmount = _whole,
    longest: float = 60.0,
) -> FaultKind:
    """One of :data:`tests.simulation.bucket.SHARES` and the like."""

    def begin(cluster: Cluster, fault: SimulatedFault) -> None:
        cluster.world.bucket.troubles.begin(trouble, fault.amount)

    def end(cluster: Cluster, fault: SimulatedFault) -> None:
        cluster.world.bucket.troubles.end(trouble, fault.amount)

    return FaultKind(f"store-{trouble}", rows, lasting(_store, 0.5, longest, amount), begin, end)


def _damages(damage: Damage) -> Strike:
    """This share of what shards have saved."""

    def begin(cluster: Cluster, fault: SimulatedFault) -> None:
        bucket = cluster.world.bucket
        for key in sorted(key for key in bucket.objects if ROUND in key):
            if bucket.random.random() < fault.amount:
                damage(bucket, key)

    return begin


def _flip_bit(bucket: Bucket, key: str) -> None:
    bucket.flip_bit(key, bucket.random.random())


def _truncate(bucket: Bucket, key: str) -> None:
    bucket.truncate(key, bucket.random.random())


def _swap(bucket: Bucket, key: str) -> None:
    bucket.replace_object(key, bucket.random.choice(sorted(one for one in bucket.objects if ROUND in one)))


def _damage_newest_manifest(cluster: Cluster, _fault: SimulatedFault) -> None:
    bucket = cluster.world.bucket
    manifests = sorted(key for key in bucket.objects if MANIFEST in key)
    if manifests:
        _flip_bit(bucket, manifests[-1])


SHARE = choose_between(0.01, 0.5)
OFTEN = choose_between(0.05, 1.0)

KINDS: tuple[FaultKind, ...] = (
    _trouble("busy", ("S2",), SHARE),
    _trouble("refused", ("S1",), longest=300.0),
    _trouble("silent", ("S1",), longest=120.0),
    _trouble("lost", ("S6", "N7"), OFTEN),
    _trouble("late", ("S4", "S6"), SHARE),
    _trouble("slow", ("S3",), choose_between(1e-5, 1e-3)),
    _trouble("cut", ("S5",), OFTEN),
    _trouble("stalled", ("S3",), SHARE),
    _trouble("garbled", ("S5",), OFTEN),
    _trouble("conflict", ("S6",), OFTEN),
    _trouble("full", ("L1",), longest=120.0),
    _trouble("denied", ("S9",), longest=120.0),
    FaultKind("store-flipped", ("S7",), sudden(_store, SHARE), _damages(_flip_bit)),
    FaultKind("store-truncated", ("S7",), sudden(_store, SHARE), _damages(_truncate)),
    FaultKind("store-swapped", ("S7",), sudden(_store, SHARE), _damages(_swap)),
    FaultKind("store-removed", ("S7",), sudden(_store, SHARE), _damages(Bucket.remove)),
    FaultKind("manifest-flipped", ("S8",), sudden(_store), _damage_newest_manifest, focused=True),
)
