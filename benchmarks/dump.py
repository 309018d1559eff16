"""T_dump: what a checkpoint round takes from training.

At r = 1/8, with 100 MB of parameters and iterations of 1 s.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import scar
from benchmarks import yardsticks
from benchmarks.measure import BenchRow, Pair, duration_row, time_action
from benchmarks.training import BenchTraining, start_training
from scar.v1 import checkpoint_pb2

SHAPE = (390_625, 64)  # 100 MB
FRACTION = 1 / 8
COMPUTE_SECONDS = 1.0
ROUND_SECONDS = 60.0
AFTER = "when its clock is closed, as of a job"
WITH = "when its pushes start"  # then its copy holds up the apply of some
MOMENTS = ("", AFTER, WITH)

RoundCall = Any  # a call of gRPC that is under way
RoundReport = Any  # its reply
ROUND = checkpoint_pb2.TriggerRequest(selection="priority", fraction=FRACTION)


def measure_rows(repeat: int) -> list[BenchRow]:
    gradient = np.full(SHAPE, 1e-3, dtype=np.float32)
    times, reports = _time_iterations(gradient, repeat)
    medians = {moment: statistics.median(found) for moment, found in times.items()}
    rows = [_stall_row(reports, int(gradient.nbytes * FRACTION))]
    for moment in (AFTER, WITH):
        whole = Pair(medians[moment], medians[""])
        share = (whole.ours - whole.yardstick) / whole.yardstick
        name = f"iteration with a round {moment}"
        rows.append(duration_row(name, whole, "s", "iteration without", f"adds {share:.2%}"))
    return rows


def _stall_row(reports: Sequence[RoundReport], copied: int) -> BenchRow:
    """``copied``: bytes that a round copies while nothing is applied."""
    memory = yardsticks.copy_memory(copied)
    memory()
    stall = Pair(
        statistics.median(report.copy_seconds for report in reports),
        statistics.median(time_action(memory) for _ in range(9)),
    )
    name = "T_dump: no push is applied during a round"
    return duration_row(name, stall, "ms", "one memcpy of the saved values", f"{copied / 1e6:g} MB")


def _time_iterations(
    gradient: NDArray[np.float32], repeat: int
) -> tuple[dict[str, list[float]], list[RoundReport]]:
    """Seconds of iterations by the moment of their round, in turns; and what the rounds reported."""
    times: dict[str, list[float]] = {moment: [] for moment in MOMENTS}
    reports: list[RoundReport] = []
    with start_training([scar.Table("w", SHAPE, rule=scar.sgd(lr=0.1))]) as run:
        _run_iteration(run, gradient, "")
        for _ in range(repeat):
            for moment in MOMENTS:
                started = time.perf_counter()
                calls = _run_iteration(run, gradient, moment)
                times[moment].append(time.perf_counter() - started)
                reports += [call.result() for call in calls]
    return times, reports


def _run_iteration(run: BenchTraining, gradient: NDArray[np.float32], moment: str) -> list[RoundCall]:
    """With a round at this moment, which goes on beside it."""
    trigger = run.cluster.endpoints.checkpoint.Trigger
    calls = []
    if moment == WITH:
        calls.append(trigger.future(ROUND, timeout=ROUND_SECONDS))
    run.step(lambda: run.worker.push("w", gradient))
    if moment == AFTER:
        calls.append(trigger.future(ROUND, timeout=ROUND_SECONDS))
    run.worker.pull("w")
    time.sleep(COMPUTE_SECONDS)
    return calls
