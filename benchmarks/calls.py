"""Small calls: what a request costs when it carries next to nothing."""

from __future__ import annotations

import numpy as np

import scar
from benchmarks import yardsticks
from benchmarks.measure import Pair, Row, duration, paired
from benchmarks.training import training

CALLS = 100  # timed together


def rows(repeat: int) -> list[Row]:
    one = np.zeros(1, dtype=np.uint32)
    value = np.ones((1, 64), dtype=np.float32)
    small = value.view(np.uint8).reshape(-1)
    back = np.zeros_like(small)
    with training([scar.Table("w", (64, 64))], consistency="asp") as run, yardsticks.tcp() as peer:

        def pulls() -> None:
            for _ in range(CALLS):
                run.worker.pull("w", ids=one)

        def steps() -> None:
            for _ in range(CALLS):
                run.step(lambda: run.worker.push("w", value, ids=one))

        def exchanges() -> None:
            for _ in range(CALLS):
                peer.exchange(small, back)

        pull, step = paired(pulls, exchanges, repeat), paired(steps, exchanges, repeat)
    against = "TCP ping-pong"
    return [
        duration("pull of one row of 64", _each(pull), "us", against),
        duration("push of one row of 64, acknowledged, and the end of the clock", _each(step), "us", against),
    ]


def _each(times: Pair) -> Pair:
    return Pair(times.ours / CALLS, times.yardstick / CALLS)
