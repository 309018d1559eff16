"""T_dump: what a checkpoint round takes from training, at r = 1/8 with 100 MB of parameters and iterations of 1 s."""

from __future__ import annotations

import statistics
import time
from typing import Any

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
AFTER, WITH = "when its clock is closed, as of a job", "when its pushes start"  # then its copy holds up the apply of some
MOMENTS = ("", AFTER, WITH)

Asked = Any  # a call of gRPC that is under way
ROUND = checkpoint_pb2.TriggerRequest(selection="priority", fraction=FRACTION)


def rows(repeat: int) -> list[Row]:
    gradient = np.full(SHAPE, 1e-3, dtype=np.float32)
    taken: dict[str, list[float]] = {name: [] for name in MOMENTS}
    reports = []
    with training([scar.Table("w", SHAPE, rule=scar.sgd(lr=0.1))]) as run:
        _iteration(run, gradient, "")
        for _ in range(repeat):
            for moment, times in taken.items():
                asked: list[Asked] = []
                times.append(seconds(lambda moment=moment, asked=asked: asked.extend(_iteration(run, gradient, moment))))
                reports += [one.result() for one in asked]
    copied = int(gradient.nbytes * FRACTION)
    memory = yardsticks.copy(copied)
    memory()
    stall = Pair(
        statistics.median(report.copy_seconds for report in reports), statistics.median(seconds(memory) for _ in range(9))
    )
    medians = {moment: statistics.median(times) for moment, times in taken.items()}
    found = [
        duration(
            "T_dump: no push is applied during a round", stall, "ms", "one memcpy of the saved values", f"{copied / 1e6:g} MB"
        )
    ]
    for moment in (AFTER, WITH):
        whole = Pair(medians[moment], medians[""])
        share = (whole.ours - whole.yardstick) / whole.yardstick
        found.append(duration(f"iteration with a round {moment}", whole, "s", "iteration without", f"adds {share:.2%}"))
    return found


def _iteration(run: Training, gradient: NDArray[np.float32], moment: str) -> list[Asked]:
    """With a round at this moment, which goes on beside it."""

    def ask(now: str) -> list[Asked]:
        return [run.cluster.checkpoint.Trigger.future(ROUND, timeout=ROUND_SECONDS)] if now == moment else []

    asked = ask(WITH)
    run.step(lambda: run.worker.push("w", gradient))
    asked += ask(AFTER)
    run.worker.pull("w")
    time.sleep(COMPUTE_SECONDS)
    return asked
