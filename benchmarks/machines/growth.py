"""From one shard and one worker to eight of each, every one on a machine of its own, behind links so slow
that they are what limits.

Every worker pushes and pulls the whole table in each clock, and every shard has its part of it: so a machine
moves as many bytes in a clock however many there are, and a clock should take as long. Then N workers do N
times the work in the same time.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

from benchmarks.machines.network import Machines, read_line
from benchmarks.machines.scar_cluster import WIDTH
from benchmarks.machines.scar_system import start_cluster, start_shards, start_worker, train_together

SIZE = 4 << 20  # of the table
ROWS = SIZE // (4 * WIDTH)


@dataclass(frozen=True)
class GrownStep:
    """Of ``count`` shards and workers: median ``seconds`` of a clock, and what would be possible (``least``);
    ``cores`` of this machine that were busy meanwhile.
    """

    count: int
    seconds: float
    least: float
    cores: float


def measure_growth(count: int, megabits: float, warm_ups: int, steps: int) -> GrownStep:
    """The coordinators share the first shard's machine."""
    with Machines(2 * count, megabits) as machines:
        settings = start_cluster(machines, 0, (1, count, count, ROWS))
        start_shards(machines, count, settings)
        workers = [
            start_worker(machines, count + number, f"worker-{number}", warm_ups + steps, settings)
            for number in range(count)
        ]
        for worker in workers:
            read_line(worker)
        began, busy = time.monotonic(), _busy_seconds()
        found = train_together(workers)[warm_ups:]
        cores = (_busy_seconds() - busy) / (time.monotonic() - began)
        seconds = statistics.median(found)
        return GrownStep(count, seconds, 2 * SIZE * 8e-6 / megabits, cores)


def _busy_seconds() -> float:
    """Of all cores, since the machine started."""
    with open("/proc/stat") as counters:
        ticks = [int(one) for one in counters.readline().split()[1:]]
    return (sum(ticks) - ticks[3] - ticks[4]) / 100
