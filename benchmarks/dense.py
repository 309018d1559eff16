"""An iteration that moves a whole table: push, apply, pull, through one shard."""

from __future__ import annotations

import numpy as np

import scar
from benchmarks import yardsticks
from benchmarks.measure import BenchRow, rate_row, time_pairs
from benchmarks.training import AS_BETWEEN_MACHINES, start_training

SIZE = 64 << 20
SHAPE = (SIZE // 256, 64)


def measure_rows(repeat: int) -> list[BenchRow]:
    """Through memory that processes of one machine share; and as messages, as between two machines."""
    return [
        _measure_row(consistency, shared, repeat)
        for shared in (True, False)
        for consistency in ("asp", "bsp")
    ]


def _measure_row(consistency: str, shared: bool, repeat: int) -> BenchRow:
    gradient = np.full(SHAPE, 1e-6, dtype=np.float32)
    up = gradient.view(np.uint8).reshape(-1)
    down = np.zeros(SIZE, dtype=np.uint8)
    table = scar.Table("w", SHAPE, rule=scar.sgd(lr=0.1))
    settings = {} if shared else AS_BETWEEN_MACHINES
    with (
        start_training([table], consistency=consistency, settings=settings) as run,
        yardsticks.tcp_peer() as peer,
    ):

        def ours() -> None:
            run.step(lambda: run.worker.push("w", gradient))
            run.worker.pull("w")  # waits for the closed clock, so that the apply is part of the time

        times = time_pairs(ours, lambda: peer.exchange(up, down), repeat)
    way = "" if shared else ", as messages"
    return rate_row(
        f"push + apply + pull of 64 MiB, {consistency}{way}", 2 * SIZE / 1e9, times, "GB/s", "plain TCP"
    )
