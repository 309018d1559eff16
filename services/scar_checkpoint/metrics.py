"""What the coordinator counts, beside what every service does. Shards report an age of the same name from
their own process, so these are registered only when this process is the coordinator.
"""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import REGISTRY, Counter, Gauge

ROUNDS = Counter(
    "scar_checkpoint_rounds", "Rounds by result: committed, unchanged or failed", ["result"], registry=None
)
BYTES = Counter(
    "scar_checkpoint_bytes", "Bytes that committed rounds have written to the store", registry=None
)
AGE = Gauge(
    "scar_checkpoint_age_seconds",
    "Seconds since the newest manifest was committed; -1: none yet",
    registry=None,
)


def register(age: Callable[[], float]) -> None:
    """Make them part of this process's metrics."""
    AGE.set_function(age)
    for metric in (ROUNDS, BYTES, AGE):
        REGISTRY.register(metric)
