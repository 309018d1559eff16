"""The training file of chaos runs: it counts, and has written down what it pushes before it pushes it.

``SCAR_CHAOS_JOB``: JSON of the arguments of :func:`scar_chaos.core.counting_job.make_job`.
``SCAR_CHAOS_RECORDER``: the recorder, host:port.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

import numpy as np

import scar
from scar_chaos.core.counting_job import (
    PAIRS,
    make_job,
    per_block,
    push_amount,
    pushed_elements,
    torn_blocks,
)
from scar_chaos.recorder import RecorderClient

# seconds of "computing" in a clock: a few hundred clocks a minute, and cores left for the cluster
PAUSE = 0.06
NEVER = 1 << 30

PushTarget = tuple[scar.Table, np.ndarray | None]  # a table and block ids; None: all


class CountingWorker:
    """What one worker incarnation does in a clock."""

    def __init__(self, worker: scar.Worker) -> None:
        self._worker = worker
        self._random = np.random.default_rng(worker.rank)
        self._pushes = 0

    def pull_tables(self, clock: int) -> list[dict[str, Any]]:
        """Pull all tables; returns events that say what they held."""
        events: list[dict[str, Any]] = []
        for table in self._worker.job.tables:
            before = self._worker.epoch
            values = self._worker.pull(table.name)
            events.append(
                {
                    "pull": clock,
                    "table": table.name,
                    "epochs": [before, self._worker.epoch],
                    "values": per_block(table, values).tolist(),
                }
            )
            if torn := torn_blocks(table, values):
                events.append({"torn": clock, "table": table.name, "blocks": torn})
        return events

    def share_loss(self, clock: int, pulled: list[dict[str, Any]]) -> tuple[float, dict[str, Any]]:
        """The loss of this worker's share of the first table, and its event: see ``reported_losses.py``."""
        share = self._worker.data_slice(self._worker.job.tables[0].blocks)
        values = next(event["values"] for event in pulled if "pull" in event)
        return float(sum(values[share])), {"share": clock, "blocks": [share.start, share.stop]}

    def choose_blocks(self, clock: int) -> list[PushTarget]:
        """All of the first table, a few blocks of the second, one of the third."""
        rows, pairs, ragged = self._worker.job.tables
        some = np.sort(self._random.choice(pairs.blocks, 5, replace=False)).astype(np.uint32)
        return [(rows, None), (pairs, some), (ragged, np.array([clock % ragged.blocks], dtype=np.uint32))]

    def announce_pushes(self, clock: int, chosen: list[PushTarget]) -> list[dict[str, Any]]:
        """Events of the pushes that come next."""
        return [
            {
                "push": number,
                "clock": clock,
                "table": table.name,
                "ids": None if ids is None else ids.tolist(),
            }
            for number, (table, ids) in enumerate(chosen, self._pushes + 1)
        ]

    def push_blocks(self, chosen: list[PushTarget]) -> None:
        for table, ids in chosen:
            self._pushes += 1
            value = push_amount(self._worker.member.key, self._pushes)
            elements = pushed_elements(table) if ids is None else pushed_elements(table)[ids]
            rows = int(elements.sum()) // table.row_elements
            gradient = np.full((rows, *table.shape[1:]), value, dtype=table.dtype)
            if table.name == PAIRS and ids is not None:
                self._worker.push(table.name, gradient, rows=2 * ids)
            else:
                self._worker.push(table.name, gradient, ids=ids)


def train(worker: scar.Worker) -> None:
    """Every clock: pull all tables, push one densely, one to a few blocks, one ragged.

    Rests and ends when it is told to.
    """
    counting = CountingWorker(worker)
    pause = OPTIONS.get("pace", PAUSE) + OPTIONS.get("slow", {}).get(str(worker.rank), 0.0)
    with RecorderClient(os.environ["SCAR_CHAOS_RECORDER"], worker.member.key) as recorder:
        for clock in worker.clocks(limit=NEVER):
            orders = recorder.write_events({"open": clock})  # so all clocks below were acknowledged
            while orders.get("hold") == clock and orders.get("end", NEVER) > clock:
                time.sleep(PAUSE)
                orders = recorder.write_events()
            if orders.get("end", NEVER) <= clock:
                break
            pulled = counting.pull_tables(clock)
            chosen = counting.choose_blocks(clock)
            loss, share = counting.share_loss(clock, pulled)
            recorder.write_events(*pulled, share, *counting.announce_pushes(clock, chosen))
            counting.push_blocks(chosen)
            worker.report(loss)
            time.sleep(PAUSE if "hold" in orders else pause)  # nobody waits for what is about to rest


OPTIONS: dict[str, Any] = json.loads(os.environ.get("SCAR_CHAOS_JOB", "{}"))
job = make_job(**OPTIONS)
