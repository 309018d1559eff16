"""An iteration that touches random rows of a large table: on one machine, and as messages, as between two."""

from __future__ import annotations

import numpy as np

import scar
from benchmarks import yardsticks
from benchmarks.measure import BenchRow, rate_row, time_pairs
from benchmarks.training import AS_BETWEEN_MACHINES, start_training

TABLE_ROWS = 200_000
WIDTH = 64
TOUCHED = 20_000


def measure_rows(repeat: int) -> list[BenchRow]:
    return [_measure_row({}, "", repeat), _measure_row(AS_BETWEEN_MACHINES, ", as messages", repeat)]


def _measure_row(settings: dict[str, str], way: str, repeat: int) -> BenchRow:
    draw = np.random.default_rng(1)
    ids = np.sort(draw.choice(TABLE_ROWS, TOUCHED, replace=False)).astype(np.uint32)
    gradient = draw.normal(size=(TOUCHED, WIDTH)).astype(np.float32)
    up = gradient.view(np.uint8).reshape(-1)
    down = np.zeros(gradient.nbytes, dtype=np.uint8)
    table = scar.Table("e", (TABLE_ROWS, WIDTH), rule=scar.adagrad(lr=0.1))
    with (
        start_training([table], consistency="asp", settings=settings) as run,
        yardsticks.tcp_peer() as peer,
    ):

        def ours() -> None:
            run.step(lambda: run.worker.push("e", gradient, ids=ids))
            run.worker.pull("e", ids=ids)

        times = time_pairs(ours, lambda: peer.exchange(up, down), repeat)
    what = f"push + AdaGrad + pull of 20,000 random rows of 64{way}"
    return rate_row(what, TOUCHED / 1e6, times, "million rows/s", "plain TCP")
