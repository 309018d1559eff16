"""A training file whose pushes are numbers that no wrong sum can imitate; it writes down what it pushed and pulled.

Every push adds one large random amount to whole blocks. So a block whose elements differ was torn, and a block whose sum is not
what was written down lost an update or has one twice. The file runs in worker processes, and tests import ``make_job``.

The environment says how: ``SCAR_TEST_JOB`` (JSON of ``make_job``'s arguments), ``SCAR_TEST_HISTORY`` (folder for the records),
``SCAR_TEST_CONTROL`` (JSON file: ``hold`` and ``end`` are clocks at which all workers wait, or stop).
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

import scar

PAUSE = 0.03  # seconds of "computing" in a clock: a few hundred clocks a test, and cores left for the cluster
OFFSETS = (0, 1, 3, 4, 9, 10, 12, 20, 21, 22, 30)  # ragged blocks


def make_job(name: str = "counting", **options: Any) -> scar.Job:
    """Three kinds of tables: one block a row, two rows a block, ragged. ``options`` are those of :class:`scar.Job`.

    ``slow``: rank -> extra seconds that this worker takes for a clock.
    """
    options.pop("slow", None)
    policy = options.pop("checkpoint", {"selection": "priority", "fraction": 0.5, "period": 8})
    tables = (
        scar.Table("rows", (24, 3), dtype="int64", rule=scar.add()),
        scar.Table("pairs", (32, 2), dtype="int64", rule=scar.add(), blocks=scar.rows(2), init=scar.constant(7)),
        scar.Table("ragged", (30, 2), dtype="float64", rule=scar.add(), blocks=scar.ragged(OFFSETS)),
    )
    return scar.Job(name, tables=tables, checkpoint=scar.Checkpoint(**policy), **options)


def amount(worker: str, push: int) -> int:
    """What this push of this worker incarnation adds to every element: 1 to 2^32, known to whoever reads the history."""
    digest = hashlib.blake2b(f"{worker}/{push}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "little") + 1


def per_block(table: scar.Table, array: np.ndarray) -> np.ndarray:
    """First element of every block; NaN-free proof of tearing is :func:`torn`."""
    return array.reshape(table.shape[0], -1)[table.row_offsets[:-1], 0]


def torn(table: scar.Table, array: np.ndarray) -> list[int]:
    """Blocks whose elements are not all equal."""
    flat, starts = np.ascontiguousarray(array).reshape(-1), table.layout.starts[:-1]
    return np.flatnonzero(np.minimum.reduceat(flat, starts) != np.maximum.reduceat(flat, starts)).tolist()


def control() -> dict[str, int]:
    """What the test asks for; a file that is being replaced reads as nothing."""
    try:
        found: dict[str, int] = json.loads(Path(os.environ["SCAR_TEST_CONTROL"]).read_text())
    except (OSError, ValueError):
        return {}
    return found


class Recorder:
    """One JSON line per event, written before the next thing happens: a killed process leaves all but its last line."""

    def __init__(self, worker: scar.Worker) -> None:
        self.worker, self.key, self.pushes = worker, worker.member.key, 0
        self.file = (Path(os.environ["SCAR_TEST_HISTORY"]) / f"{self.key}.jsonl").open("a", encoding="utf-8")

    def write(self, **event: Any) -> None:
        self.file.write(json.dumps(event) + "\n")
        self.file.flush()

    def push(self, table: scar.Table, clock: int, ids: np.ndarray | None = None) -> None:
        self.pushes += 1
        value = amount(self.key, self.pushes)
        self.write(push=self.pushes, clock=clock, table=table.name, ids=None if ids is None else ids.tolist())
        rows = table.shape[0] if ids is None else int(table.layout.sizes[ids].sum()) // table.row_elements
        self.worker.push(table.name, np.full((rows, *table.shape[1:]), value, dtype=table.dtype), ids=ids)

    def pull(self, clock: int) -> None:
        before = self.worker.epoch
        for table in self.worker.job.tables:
            values = self.worker.pull(table.name)
            self.write(
                pull=clock, table=table.name, epochs=[before, self.worker.epoch], values=per_block(table, values).tolist()
            )
            if broken := torn(table, values):
                self.write(torn=clock, table=table.name, blocks=broken)


def train(worker: scar.Worker) -> None:
    """Every clock: pull all tables, push one densely, one to a few blocks, one ragged."""
    record, draw = Recorder(worker), np.random.default_rng(worker.rank)
    pause = PAUSE + OPTIONS.get("slow", {}).get(str(worker.rank), 0.0)
    rows, pairs, ragged = worker.job.tables
    for clock in worker.clocks(limit=1 << 20):
        record.write(open=clock, at=time.monotonic())  # so all clocks below were acknowledged
        while control().get("hold") == clock:
            time.sleep(PAUSE)
        if control().get("end", 1 << 30) <= clock:
            break
        record.pull(clock)
        record.push(rows, clock)
        record.push(pairs, clock, np.sort(draw.choice(pairs.blocks, 5, replace=False)).astype(np.uint32))
        record.push(ragged, clock, np.array([clock % ragged.blocks], dtype=np.uint32))
        worker.report(float(clock))
        time.sleep(pause)


OPTIONS: dict[str, Any] = json.loads(os.environ.get("SCAR_TEST_JOB", "{}"))
job = make_job(**OPTIONS)
