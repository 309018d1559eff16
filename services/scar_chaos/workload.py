"""The training file of chaos runs: it counts, and has written down what it pushes before it pushes it.

``SCAR_CHAOS_JOB``: JSON of :func:`scar_chaos.counting.make_job`'s arguments. ``SCAR_CHAOS_RECORDER``: the recorder, host:port.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

import numpy as np

import scar
from scar_chaos.counting import amount, make_job, per_block, torn
from scar_chaos.recorder import Journal

PAUSE = 0.06  # seconds of "computing" in a clock: a few hundred clocks a minute, and cores left for the cluster
NEVER = 1 << 30

Push = tuple[scar.Table, np.ndarray | None]


class Count:
    """What one worker incarnation does in a clock."""

    def __init__(self, worker: scar.Worker) -> None:
        self.worker, self.draw, self.pushes = worker, np.random.default_rng(worker.rank), 0

    def pulled(self, clock: int) -> list[dict[str, Any]]:
        """Pull all tables; what they held."""
        events: list[dict[str, Any]] = []
        for table in self.worker.job.tables:
            before = self.worker.epoch
            values = self.worker.pull(table.name)
            epochs = [before, self.worker.epoch]
            events.append({"pull": clock, "table": table.name, "epochs": epochs, "values": per_block(table, values).tolist()})
            if broken := torn(table, values):
                events.append({"torn": clock, "table": table.name, "blocks": broken})
        return events

    def chosen(self, clock: int) -> list[Push]:
        """All of the first table, a few blocks of the second, one of the third."""
        rows, pairs, ragged = self.worker.job.tables
        some = np.sort(self.draw.choice(pairs.blocks, 5, replace=False)).astype(np.uint32)
        return [(rows, None), (pairs, some), (ragged, np.array([clock % ragged.blocks], dtype=np.uint32))]

    def announced(self, clock: int, pushes: list[Push]) -> list[dict[str, Any]]:
        return [
            {"push": number, "clock": clock, "table": table.name, "ids": None if ids is None else ids.tolist()}
            for number, (table, ids) in enumerate(pushes, self.pushes + 1)
        ]

    def push(self, pushes: list[Push]) -> None:
        for table, ids in pushes:
            self.pushes += 1
            value = amount(self.worker.member.key, self.pushes)
            rows = table.shape[0] if ids is None else int(table.layout.sizes[ids].sum()) // table.row_elements
            self.worker.push(table.name, np.full((rows, *table.shape[1:]), value, dtype=table.dtype), ids=ids)


def train(worker: scar.Worker) -> None:
    """Every clock: pull all tables, push one densely, one to a few blocks, one ragged. Rests and ends when it is told to."""
    count, pause = Count(worker), PAUSE + OPTIONS.get("slow", {}).get(str(worker.rank), 0.0)
    with Journal(os.environ["SCAR_CHAOS_RECORDER"], worker.member.key) as journal:
        for clock in worker.clocks(limit=NEVER):
            orders = journal.write({"open": clock})  # so all clocks below were acknowledged
            while orders.get("hold") == clock and orders.get("end", NEVER) > clock:
                time.sleep(PAUSE)
                orders = journal.write()
            if orders.get("end", NEVER) <= clock:
                break
            seen, pushes = count.pulled(clock), count.chosen(clock)
            journal.write(*seen, *count.announced(clock, pushes))
            count.push(pushes)
            worker.report(float(clock))
            time.sleep(pause)


OPTIONS: dict[str, Any] = json.loads(os.environ.get("SCAR_CHAOS_JOB", "{}"))
job = make_job(**OPTIONS)
