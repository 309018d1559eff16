"""T_dump: what a checkpoint round takes from training, at r = 1/8 with 100 MB of parameters and iterations of 1 s."""

from __future__ import annotations

import statistics
import time

import numpy as np
from numpy.typing import NDArray

import scar
from benchmarks import yardsticks
from benchmarks.measure import Pair, Row, duration, seconds
from benchmarks.training import Training, training
from scar.v1 import checkpoint_pb2

SHAPE = (390_625, 64)  # 100 MB
FRACTION = 1 / 8
COMPUTE_SECONDS = 1.0
ROUND_SECONDS = 60.0
ROUND = checkpoint_pb2.TriggerRequest(selection="priority", fraction=FRACTION)


def rows(repeat: int) -> list[Row]:
    gradient = np.full(SHAPE, 1e-3, dtype=np.float32)
    plain, loaded, reports = [], [], []
    with training([scar.Table("w", SHAPE, rule=scar.sgd(lr=0.1))]) as run:
        _iteration(run, gradient)
        for _ in range(repeat):
            plain.append(seconds(lambda: _iteration(run, gradient)))
            # The round starts when the pushes do: its copy must then hold up the apply of some.
            asked = run.cluster.checkpoint.Trigger.future(ROUND, timeout=ROUND_SECONDS)
            loaded.append(seconds(lambda: _iteration(run, gradient)))
            reports.append(asked.result())
    copied = int(gradient.nbytes * FRACTION)
    memory = yardsticks.copy(copied)
    memory()
    stall = Pair(
        statistics.median(report.copy_seconds for report in reports), statistics.median(seconds(memory) for _ in range(9))
    )
    whole = Pair(statistics.median(loaded), statistics.median(plain))
    share = (whole.ours - whole.yardstick) / whole.yardstick
    return [
        duration(
            "T_dump: no push is applied during a round", stall, "ms", "one memcpy of the saved values", f"{copied / 1e6:g} MB"
        ),
        duration("iteration with a round", whole, "s", "iteration without", f"adds {share:.2%}"),
    ]


def _iteration(run: Training, gradient: NDArray[np.float32]) -> None:
    run.step(lambda: run.worker.push("w", gradient))
    run.worker.pull("w")
    time.sleep(COMPUTE_SECONDS)
