"""A training that goes on for minutes, and whose loss is 0 as long as no push is lost, torn or counted twice.

Every worker adds 1 to all elements in every clock, so they are equal; and each is between the number of
clocks, if one worker was always away, and twice as much.
"""

from __future__ import annotations

import time

import numpy as np

import scar

CLOCK_SECONDS = 0.05
SHAPE = (240, 4)
job = scar.Job(
    "counting", tables=[scar.Table("w", SHAPE, dtype="int64", rule=scar.add())], shards=2, workers=2
)


def train(worker: scar.Worker) -> None:
    one = np.ones(SHAPE, np.int64)
    for clock in worker.clocks(limit=100_000):
        counted = worker.pull("w")
        low, high = int(counted.min()), int(counted.max())
        wrong = (high - low) + max(0, clock - low) + max(0, high - 2 * clock)
        worker.push("w", one)
        worker.report(wrong / worker.world_size)
        time.sleep(CLOCK_SECONDS)
