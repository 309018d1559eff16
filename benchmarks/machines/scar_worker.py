"""A worker on a machine of its own: pushes a whole table, ends the clock, pulls the table again.

    python -m benchmarks.machines.scar_worker NAME STEPS

Waits for a line before the first step. Prints the seconds of all steps as a line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence

import numpy as np

import scar
from benchmarks.machines.scar_cluster import WIDTH
from scar_runtime.process.memory import keep_freed


def main(arguments: Sequence[str]) -> None:
    name, steps = arguments[0], int(arguments[1])
    keep_freed()  # as every worker process does
    seconds = []
    with scar.join(os.environ["SCAR_RECOVERY"], name, detector=os.environ["SCAR_DETECTOR"]) as worker:
        gradient = np.full((worker.job.table("w").shape[0], WIDTH), 1e-6, np.float32)
        print("ready", flush=True)  # noqa: T201
        sys.stdin.readline()
        clocks = iter(worker.clocks(limit=steps + 1))
        next(clocks)
        for _ in range(steps):
            began = time.perf_counter()
            worker.push("w", gradient)
            next(clocks)
            worker.pull("w")
            seconds.append(time.perf_counter() - began)
        print(json.dumps(seconds), flush=True)  # noqa: T201
        for _ in clocks:
            pass


if __name__ == "__main__":
    main(sys.argv[1:])
