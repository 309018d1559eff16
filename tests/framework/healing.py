"""A training file whose every bit shows what was lost, added twice, or applied out of its order: values feed
back, and two workers push floats whose sums depend on their order.

``SCAR_TEST_JOB`` (JSON of ``make_job``'s arguments) and ``SCAR_TEST_HISTORY`` (a folder) come from the
environment. The last clocks wait for a file ``over`` in the folder: all deaths are over.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import scar

CLOCKS = 60
HELD_CLOCK = 50
PACE = 0.02  # seconds of computing in a clock
STRAGGLER = 0.03  # more of the last rank, in some clocks: then some shards close a clock before others


WHOLE = ("sgd", "add", "assign")  # tables that workers give back alone
SLOTTED = ("momentum", "adam")
MISSING = (*SLOTTED, "sparse")  # with slots, or pulled in part: replicas have what workers lack
SHAPES: dict[str, dict[str, Any]] = {
    "sgd": {"rule": scar.sgd(0.05, weight_decay=0.01)},
    "add": {"rule": scar.add(), "blocks": scar.rows(3)},
    "assign": {"rule": scar.assign(), "blocks": scar.rows(2)},
    "momentum": {"rule": scar.momentum(0.05, 0.9)},
    "adam": {"rule": scar.adam(0.01), "blocks": scar.rows(3)},
    "sparse": {"rule": scar.sgd(0.05, weight_decay=0.01)},
    "count": {"rule": scar.add(), "dtype": "int64"},
    "count-sparse": {"rule": scar.add(), "dtype": "int64"},
    "count-slots": {"rule": scar.rule({"v": "v + g", "w": "w + g"}, slots=["v"]), "dtype": "float64"},
}
COUNTED = ("count", "count-sparse", "count-slots")  # whole numbers are added: in any order the same sum


def make_job(name: str = "healing", kinds: Sequence[str] = WHOLE, **options: Any) -> scar.Job:
    """``kinds``: of tables."""
    initial = {kind: scar.constant(7) if kind in COUNTED else scar.uniform(-1, 1) for kind in kinds}
    tables = [scar.Table(kind, (64, 5), init=initial[kind], **SHAPES[kind]) for kind in kinds]
    return scar.Job(name, tables=tables, checkpoint=scar.Checkpoint(period=16), **options)


def pushed_values(kind: str, values: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Bounded, and of all values that were pulled; whole numbers that depend on nothing."""
    if kind in COUNTED:
        return draw.integers(1, 1 << 40, values.shape).astype(values.dtype)
    return (np.tanh(values) * 0.3 + draw.normal(size=values.shape) * 0.1).astype(np.float32)


def counted(kinds: Sequence[str], workers: int) -> dict[str, np.ndarray]:
    """What a job of these tables, all of :data:`COUNTED`, ends with if every push is in it once."""
    totals = {kind: np.full((64, 5), 7, SHAPES[kind]["dtype"]) for kind in kinds}
    for number in range(workers):
        for clock in range(CLOCKS):
            draw = np.random.default_rng([number, clock])
            rows = _draw_rows(draw)
            for kind, total in totals.items():
                at = rows if kind.endswith("sparse") else slice(None)
                total[at] += pushed_values(kind, total[at], draw)
    return totals


def _draw_rows(draw: np.random.Generator) -> np.ndarray:
    """Of tables that are pulled in part."""
    return np.sort(draw.choice(64, 12, replace=False))


def train(worker: scar.Worker) -> None:
    """Every worker pulls all tables and pushes to all, of its own random numbers; part of sparse ones."""
    folder = Path(os.environ["SCAR_TEST_HISTORY"])
    names = [table.name for table in worker.job.tables]
    number = int(worker.member.name.rpartition("-")[2])  # a rank changes when others end
    for clock in worker.clocks(limit=CLOCKS):
        while clock == HELD_CLOCK and not (folder / "over").exists():
            time.sleep(PACE)
        draw = np.random.default_rng([number, clock])
        rows = _draw_rows(draw)
        sparse = [name for name in names if name.endswith("sparse")]
        values = worker.pull([name for name in names if name not in sparse])
        for name in sparse:
            values[name] = worker.pull(name, ids=rows)
        time.sleep(PACE + STRAGGLER * (number == 1 and clock % 3 == 0))
        for table in names:
            ids = rows if table in sparse else None
            worker.push(table, pushed_values(table, values[table], draw), ids=ids)
        worker.report(1.0)
    final = worker.pull(names)
    np.savez(folder / f"rank-{number}.npz", **final)


job = make_job(**json.loads(os.environ.get("SCAR_TEST_JOB", "{}")))
