"""Rows that come by Zipf's law, ids sorted by how frequent they are: a clock with and without hot blocks that
change places, where each shard is on a machine of its own, and its link is what limits.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from benchmarks.machines.network import Machines, read_line
from benchmarks.machines.scar_system import start_cluster, start_shards, start_worker, train_together

SHARDS, WORKERS = 4, 8
ROWS, BLOCK_ROWS = 200_000, 1024
DRAWN = 8_000  # of each worker in a clock; many are the same
LOOK_SECONDS = 3.0


@dataclass(frozen=True)
class HotSteps:
    """Median ``seconds`` of a clock before and after the first half of the steps."""

    first: float
    second: float


def measure_hot(looks: bool, megabits: float, steps: int) -> HotSteps:
    """``looks``: the coordinator looks at the traffic of shards, and blocks may change places."""
    environment = {"SCAR_TRAFFIC_SECONDS": str(LOOK_SECONDS if looks else 0.0), "SCAR_TRAFFIC_BYTES": "65536"}
    with Machines(SHARDS + WORKERS, megabits) as machines:
        settings = start_cluster(machines, 0, (1, SHARDS, WORKERS, ROWS), BLOCK_ROWS, environment)
        start_shards(machines, SHARDS, settings)
        workers = [
            start_worker(machines, SHARDS + number, f"worker-{number}", steps, settings, DRAWN)
            for number in range(WORKERS)
        ]
        for worker in workers:
            read_line(worker)
        seconds = train_together(workers)
    half = len(seconds) // 2
    return HotSteps(statistics.median(seconds[:half]), statistics.median(seconds[half:]))
