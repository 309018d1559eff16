"""Small calls: what a request costs when it carries next to nothing."""

from __future__ import annotations

import numpy as np

import scar
from benchmarks import yardsticks
from benchmarks.measure import BenchRow, Pair, duration_row, time_pairs
from benchmarks.training import start_training

CALLS = 100  # timed together


def measure_rows(repeat: int) -> list[BenchRow]:
    one = np.zeros(1, dtype=np.uint32)
    value = np.ones((1, 64), dtype=np.float32)
    small = value.view(np.uint8).reshape(-1)
    back = np.zeros_like(small)
    with start_training([scar.Table("w", (64, 64))], consistency="asp") as run, yardsticks.tcp_peer() as peer:

        def pulls() -> None:
            for _ in range(CALLS):
                run.worker.pull("w", ids=one)

        def steps() -> None:
            for _ in range(CALLS):
                run.step(lambda: run.worker.push("w", value, ids=one))

        def exchanges() -> None:
            for _ in range(CALLS):
                peer.exchange(small, back)

        pull = time_pairs(pulls, exchanges, repeat)
        step = time_pairs(steps, exchanges, repeat)
    against = "TCP ping-pong"
    with_clock = "push of one row of 64, acknowledged, and the end of the clock"
    return [
        duration_row("pull of one row of 64", _for_one_call(pull), "us", against),
        duration_row(with_clock, _for_one_call(step), "us", against),
    ]


def _for_one_call(times: Pair) -> Pair:
    return Pair(times.ours / CALLS, times.yardstick / CALLS)
