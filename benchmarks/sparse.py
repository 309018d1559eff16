"""An iteration that touches random rows of a large table."""

from __future__ import annotations

import numpy as np

import scar
from benchmarks import yardsticks
from benchmarks.measure import Row, paired, rate
from benchmarks.training import training

TABLE_ROWS, WIDTH, TOUCHED = 200_000, 64, 20_000


def rows(repeat: int) -> list[Row]:
    draw = np.random.default_rng(1)
    ids = np.sort(draw.choice(TABLE_ROWS, TOUCHED, replace=False)).astype(np.uint32)
    gradient = draw.normal(size=(TOUCHED, WIDTH)).astype(np.float32)
    up, down = gradient.view(np.uint8).reshape(-1), np.zeros(gradient.nbytes, dtype=np.uint8)
    table = scar.Table("e", (TABLE_ROWS, WIDTH), rule=scar.adagrad(lr=0.1))
    with training([table], consistency="asp") as run, yardsticks.tcp() as peer:

        def ours() -> None:
            run.step(lambda: run.worker.push("e", gradient, ids=ids))
            run.worker.pull("e", ids=ids)

        times = paired(ours, lambda: peer.exchange(up, down), repeat)
    return [rate("push + AdaGrad + pull of 20,000 random rows of 64", TOUCHED / 1e6, times, "million rows/s", "plain TCP")]
