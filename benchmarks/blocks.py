"""Cost per block: an iteration over a random half of 1e3 to 1e6 blocks, 64 MB in all."""

from __future__ import annotations

import numpy as np

import scar
from benchmarks import yardsticks
from benchmarks.measure import BenchRow, Pair, duration_row, time_pairs
from benchmarks.training import start_training

ELEMENTS = 16_000_000
BLOCKS = (1_000, 10_000, 100_000, 1_000_000)


def measure_rows(repeat: int) -> list[BenchRow]:
    return [_measure_row(blocks, min(repeat, 5)) for blocks in BLOCKS]


def _measure_row(blocks: int, repeat: int) -> BenchRow:
    width = ELEMENTS // blocks
    ids = np.sort(np.random.default_rng(1).choice(blocks, blocks // 2, replace=False)).astype(np.uint32)
    gradient = np.full((len(ids), width), 1e-6, dtype=np.float32)
    up = gradient.view(np.uint8).reshape(-1)
    down = np.zeros(gradient.nbytes, dtype=np.uint8)
    with (
        start_training([scar.Table("w", (blocks, width), rule=scar.sgd(lr=0.1))]) as run,
        yardsticks.tcp_peer() as peer,
    ):

        def ours() -> None:
            run.step(lambda: run.worker.push("w", gradient, ids=ids))
            run.worker.pull("w", ids=ids)

        times = time_pairs(ours, lambda: peer.exchange(up, down), repeat)
    each = Pair(times.ours / len(ids), times.yardstick / len(ids))
    return duration_row(
        f"push + apply + pull of a block, {blocks:,} blocks of {width}", each, "us", "plain TCP, same bytes"
    )
