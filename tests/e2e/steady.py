"""A training that goes on for minutes: every clock pulls a table towards a target, and takes its time."""

from __future__ import annotations

import time

import numpy as np

import scar

CLOCK_SECONDS = 0.05
job = scar.Job("steady", tables=[scar.Table("w", (240, 16), rule=scar.sgd(0.01))], shards=4, workers=2)


def train(worker: scar.Worker) -> None:
    target = np.ones((240, 16), np.float32)
    for _ in worker.clocks(limit=20_000):
        error = worker.pull("w") - target
        worker.push("w", error / worker.world_size)
        worker.report(float(np.square(error).mean()) / worker.world_size)
        time.sleep(CLOCK_SECONDS)
