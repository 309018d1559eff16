"""Workers that stay as sources of lost blocks until nothing dies any more; each adds an amount of its own."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

import scar
from scar.v1 import recovery_pb2
from tests.simulation.cluster import Cluster

Values = Mapping[str, np.ndarray]
# with the clock, what was pulled, and the amount of the worker
PushSome = Callable[[scar.Worker, int, Values, float], None]
BOTH = 1 + 64  # amounts of worker-0 and worker-1


def make_training(
    names: Sequence[str], clocks: int, over: list[bool], ends: list[Values], push: PushSome
) -> Callable[[scar.Worker], None]:
    """It waits before its last clocks until something is in ``over``; ``ends``: values of each at its end."""

    def train(worker: scar.Worker) -> None:
        amount = float(64 ** int(worker.member.name.rpartition("-")[2]))  # whose push is missing can be read
        draw = random.Random(worker.member.name)
        for clock in worker.clocks(limit=clocks):
            while clock == clocks - 5 and not over:  # who has left is no source
                time.sleep(0.1)
            values = worker.pull(names)
            time.sleep(draw.uniform(0.02, 0.2))  # it computes
            push(worker, clock, values, amount)
        ends.append(worker.pull(names))
        worker.leave()

    return train


def require_nothing_lost(cluster: Cluster) -> None:
    """By the ledger."""
    ledger = cluster.insist("ListFailures", recovery_pb2.ListFailuresRequest()).failures
    lost = {record.number: record.lost_pushes for record in ledger if record.lost_pushes}
    assert not lost, f"pushes were lost, by failure: {lost}"
