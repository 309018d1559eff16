"""Rows of a large table pushed to a shard of one machine by a worker of another, with AdaGrad, and pulled
again, beside plain TCP over the same link.

A link as fast as memory, which no machines have between them, shows what SCAR adds to a transfer, and not
what a user waits for; so links have a rate.
"""

from __future__ import annotations

import json
import sys

from benchmarks.machines.network import Machines, read_line
from benchmarks.machines.peers import CLIENT, SERVER, start_tcp
from benchmarks.machines.rows_worker import EXPONENTS
from benchmarks.machines.scar_system import MODULE, start_cluster

TABLE_ROWS = 200_000
LAWS = tuple(EXPONENTS)


def measure_rows(law: str, steps: int, gigabits: float | None) -> list[tuple[float, float]]:
    """Seconds of each step: pushed, acknowledged, the clock ended, pulled; and of as many bytes by plain TCP.
    ``law``: by which rows come. ``gigabits``: of each link, each way, per second; None: as fast as memory.
    """
    with Machines(2, None if gigabits is None else 1000 * gigabits) as machines:
        settings = start_cluster(machines, SERVER, (1, 1, 1, TABLE_ROWS), kind="sparse")
        command = [sys.executable, "-m", f"{MODULE}.rows_worker", law, *start_tcp(machines), str(steps)]
        found: list[tuple[float, float]] = json.loads(read_line(machines.start(CLIENT, command, settings)))
        return found
