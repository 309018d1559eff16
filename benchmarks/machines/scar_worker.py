"""A worker on a machine of its own: pushes a whole table, ends the clock, pulls the table again; or so many
rows of it, drawn by Zipf's law, of which the first are the most frequent.

    python -m benchmarks.machines.scar_worker NAME STEPS DRAWN

DRAWN 0: the whole table. Waits for a line before the first step. Prints the seconds of all steps as a line of
JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import repeat

import numpy as np

import scar
from benchmarks.machines.scar_cluster import WIDTH
from scar_runtime.process.memory import keep_freed

EXPONENT = 1.05  # of Zipf's law


def main(arguments: Sequence[str]) -> None:
    name = arguments[0]
    steps, drawn = map(int, arguments[1:])
    keep_freed()  # as every worker process does
    seconds = []
    with scar.join(os.environ["SCAR_RECOVERY"], name, detector=os.environ["SCAR_DETECTOR"]) as worker:
        rows = worker.job.table("w").shape[0]
        draw = make_draws(rows, drawn, name)
        print("ready", flush=True)  # noqa: T201
        sys.stdin.readline()
        clocks = iter(worker.clocks(limit=steps + 1))
        next(clocks)
        for _ in range(steps):
            asked = next(draw)
            gradient = np.full((rows if asked is None else len(asked), WIDTH), 1e-6, np.float32)
            began = time.perf_counter()
            worker.push("w", gradient, rows=asked)
            next(clocks)
            worker.pull("w", rows=asked)
            seconds.append(time.perf_counter() - began)
        print(json.dumps(seconds), flush=True)  # noqa: T201
        for _ in clocks:
            pass


def make_draws(rows: int, drawn: int, name: str) -> Iterator[np.ndarray | None]:
    """Rows of each step; None: all."""
    if not drawn:
        yield from repeat(None)
    ends = np.cumsum(row_shares(rows, EXPONENT))
    rng = np.random.default_rng(list(name.encode()))
    while True:
        yield np.unique(np.minimum(np.searchsorted(ends, rng.random(drawn)), rows - 1))


def row_shares(rows: int, exponent: float) -> np.ndarray:
    """Of what is drawn, by Zipf's law with this exponent; 0: all rows come as often."""
    shares = np.arange(1, rows + 1) ** -exponent
    return np.asarray(shares / shares.sum())


if __name__ == "__main__":
    main(sys.argv[1:])
