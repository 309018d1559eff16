"""An iteration that touches random rows of a large table."""

from __future__ import annotations

import numpy as np

import scar
from benchmarks import yardsticks
from benchmarks.measure import BenchRow, rate_row, time_pairs
from benchmarks.training import start_training

TABLE_ROWS = 200_000
WIDTH = 64
TOUCHED = 20_000


def measure_rows(repeat: int) -> list[BenchRow]:
    draw = np.random.default_rng(1)
    ids = np.sort(draw.choice(TABLE_ROWS, TOUCHED, replace=False)).astype(np.uint32)
    gradient = draw.normal(size=(TOUCHED, WIDTH)).astype(np.float32)
    up = gradient.view(np.uint8).reshape(-1)
    down = np.zeros(gradient.nbytes, dtype=np.uint8)
    table = scar.Table("e", (TABLE_ROWS, WIDTH), rule=scar.adagrad(lr=0.1))
    with start_training([table], consistency="asp") as run, yardsticks.tcp_peer() as peer:

        def ours() -> None:
            run.step(lambda: run.worker.push("e", gradient, ids=ids))
            run.worker.pull("e", ids=ids)

        times = time_pairs(ours, lambda: peer.exchange(up, down), repeat)
    return [
        rate_row(
            "push + AdaGrad + pull of 20,000 random rows of 64",
            TOUCHED / 1e6,
            times,
            "million rows/s",
            "plain TCP",
        )
    ]
