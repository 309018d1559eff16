"""A worker on a machine of its own that pushes and pulls rows of a table, in turns with plain TCP, which
carries as many bytes both ways.

    python -m benchmarks.machines.rows_worker LAW HOST PORT STEPS

LAW: by which the rows come, of :data:`EXPONENTS`. HOST and PORT: of a TCP peer. Prints the seconds of all
steps of both as a line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from functools import partial

import numpy as np

import scar
from benchmarks.machines.scar_cluster import WIDTH
from benchmarks.machines.scar_worker import EXPONENT, row_shares
from benchmarks.measure import time_action
from benchmarks.yardsticks import TcpPeer
from scar_runtime.process.memory import keep_freed

EXPONENTS = {"uniform": 0.0, "zipf": EXPONENT}
ROWS = 20_000  # of a step, all different


def main(arguments: Sequence[str]) -> None:
    law, host, port, steps = arguments[0], arguments[1], int(arguments[2]), int(arguments[3])
    keep_freed()  # as every worker process does
    peer = TcpPeer(port, host)
    draw = np.random.default_rng(1)
    found: list[tuple[float, float]] = []
    with scar.join(os.environ["SCAR_RECOVERY"], "worker-0", detector=os.environ["SCAR_DETECTOR"]) as worker:
        count = worker.job.table("w").shape[0]
        shares = row_shares(count, EXPONENTS[law])
        clocks = iter(worker.clocks(limit=steps + 1))
        next(clocks)
        for _ in range(steps):
            ids = np.sort(draw.choice(count, ROWS, replace=False, p=shares))
            gradient = draw.normal(size=(ROWS, WIDTH)).astype(np.float32)
            sent, received = gradient.view(np.uint8).reshape(-1), np.empty(gradient.nbytes, np.uint8)

            def ours(gradient: np.ndarray = gradient, ids: np.ndarray = ids) -> None:
                worker.push("w", gradient, ids=ids)
                next(clocks)
                worker.pull("w", ids=ids)

            found.append((time_action(ours), time_action(partial(peer.exchange, sent, received))))
        print(json.dumps(found), flush=True)  # noqa: T201
        for _ in clocks:
            pass


if __name__ == "__main__":
    main(sys.argv[1:])
