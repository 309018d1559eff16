"""Embedding tables of 10^6 to 10^8 rows: calls, memory, a round, a kill, and false accusations.

python -m benchmarks.rows [--rows 1000000 10000000 100000000] [--blocks 65536] [--burners 2] [--keys]

Four shards and one worker, which pulls and pushes 20,000 random rows of 8 float32 a clock; row-wise AdaGrad,
1,024 rows a block, or with --blocks as many as make at most that many blocks at each size. With --keys the
rows are those of so many keys, in a table with room for a quarter more; all of them are pushed once before
calls are measured. docs/scale.md has what it printed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table as Grid

import scar
from benchmarks.accusations import BURN
from benchmarks.training import BenchTraining, start_training
from scar.v1 import checkpoint_pb2, recovery_pb2
from scar_local import ClusterStatus

SHARDS = 4
WIDTH = 8
ROW_BYTES = 4 * (2 * WIDTH + 1)  # values, saved values, and one sum
BLOCK_ROWS = 1024
ASKED = 20_000  # rows of a call
CREATED = 100_000  # keys of a call that are new
SECONDS = 300.0
ROUND = checkpoint_pb2.TriggerRequest(selection="priority", fraction=1 / 8)
WHOLE_ROUND = checkpoint_pb2.TriggerRequest(selection="priority", fraction=1.0)
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass
class RowFigures:
    """``start``: seconds from the cluster's start to the end of the first clock. ``rate``: rows a second.
    ``shard``, ``recovery``, ``checkpoint``: MB resident. ``stall``: seconds. ``saved``, ``rest``: bytes of a
    round of an eighth of the blocks, and of one of all that had changed and was not saved by then.
    """

    rows: int
    block_rows: int
    start: float = 0.0
    rate: float = 0.0
    shard: float = 0.0
    recovery: float = 0.0
    checkpoint: float = 0.0
    epoch: int = 0
    stall: float = 0.0
    saved: int = 0
    rest: int = 0
    repair: float = 0.0
    lost: int = 0
    accused: int = 0
    created: float = 0.0


def measure_table(rows: int, calls: int, keyed: bool = False, block_rows: int = BLOCK_ROWS) -> RowFigures:
    """All figures of one size. ``keyed``: of so many keys. ``block_rows``: rows a block, without keys."""
    rule = scar.adagrad(0.1, rowwise=True)
    init = scar.uniform(-1, 1)
    if keyed:
        capacity = rows * 5 // 4
        table = scar.Table("clicks", keys="int64", dim=WIDTH, capacity=capacity, rule=rule, init=init)
    else:
        table = scar.Table("clicks", (rows, WIDTH), rule=rule, init=init, blocks=scar.rows(block_rows))
    figures = RowFigures(rows, -(-table.shape[0] // table.blocks))
    began = time.monotonic()
    with start_training([table], shards=SHARDS) as run:
        drawn = np.random.default_rng(1)
        _step(run, drawn, rows)
        figures.start = time.monotonic() - began
        if keyed:
            figures.created = _create_rows(run, rows)
        figures.rate = _measure_calls(run, drawn, rows, calls)
        _measure_memory(run, figures)
        report = run.cluster.endpoints.checkpoint.Trigger(ROUND, timeout=SECONDS)
        figures.stall, figures.saved = report.stall_seconds, report.bytes
        figures.rest = run.cluster.endpoints.checkpoint.Trigger(WHOLE_ROUND, timeout=SECONDS).bytes
        _kill_shard(run, drawn, figures)
    return figures


def _step(run: BenchTraining, drawn: np.random.Generator, rows: int) -> None:
    asked = drawn.integers(0, rows, ASKED)
    pulled = run.worker.pull("clicks", rows=asked)
    run.step(lambda: run.worker.push("clicks", 0.01 * pulled, rows=asked))


def _create_rows(run: BenchTraining, rows: int) -> float:
    """Push every key once. Returns rows a second."""
    began = time.monotonic()
    for first in range(0, rows, CREATED):
        keys = np.arange(first, min(first + CREATED, rows))
        run.worker.push("clicks", np.full((len(keys), WIDTH), 0.01, np.float32), rows=keys)
        next(run.clocks)
    return rows / (time.monotonic() - began)


def _measure_calls(run: BenchTraining, drawn: np.random.Generator, rows: int, calls: int) -> float:
    times = []
    for _ in range(calls):
        began = time.monotonic()
        _step(run, drawn, rows)
        times.append(time.monotonic() - began)
    return 2 * ASKED / statistics.median(times)


def _measure_memory(run: BenchTraining, figures: RowFigures) -> None:
    found: dict[str, list[float]] = {}
    for process in run.cluster.processes():
        resident = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * PAGE / 1e6
        found.setdefault(process.name.rpartition("-")[0] or process.name, []).append(resident)
    figures.shard = max(found["ps"])
    figures.recovery = max(found["recovery"])
    figures.checkpoint = max(found["checkpoint"])
    status = run.cluster.status()
    assert status.epoch is not None
    figures.epoch = status.epoch.ByteSize()


def _kill_shard(run: BenchTraining, drawn: np.random.Generator, figures: RowFigures) -> None:
    """What is not that shard's failure accuses somebody alive."""
    before = {one.number for one in _failures(run)}
    figures.accused = len(before)
    owned = run.cluster.status().shards["ps-1"].tables
    figures.lost = sum(one.bytes for one in owned)
    began = time.monotonic()
    run.cluster.kill("ps-1")

    def repaired(status: ClusterStatus) -> bool:
        new = [one for one in status.failures if one.number not in before]
        return any(one.load_seconds != 0 for one in new) and status.loading == 0

    run.cluster.until(repaired, SECONDS, "the recovery")
    figures.repair = time.monotonic() - began
    _step(run, drawn, figures.rows)
    new = [one for one in _failures(run) if one.number not in before]
    figures.accused += len(new) - 1


def _failures(run: BenchTraining) -> Sequence[recovery_pb2.FailureRecord]:
    request = recovery_pb2.ListFailuresRequest()
    failures: Sequence[recovery_pb2.FailureRecord] = run.cluster.endpoints.recovery.ListFailures(
        request, timeout=SECONDS
    ).failures
    return failures


def show_figures(found: Sequence[RowFigures]) -> Grid:
    """A column for each size."""
    grid = Grid(title=f"Rows of {WIDTH} float32 on {SHARDS} shards, {ASKED:,} a call")
    grid.add_column("what")
    for one in found:
        grid.add_column(f"{one.rows:,} rows", justify="right")
    lines = {
        "rows a block": lambda one: f"{one.block_rows:,}",
        "start of the cluster to the end of the first clock": lambda one: f"{one.start:.1f} s",
        "keys a second that were pushed for the first time": lambda one: f"{one.created:,.0f}",
        "rows a second, those pulled and those pushed": lambda one: f"{one.rate:,.0f}",
        "resident: a shard": lambda one: f"{one.shard:.0f} MB",
        "values, sums and saved values of it": lambda one: (
            f"{one.rows * 4 * (2 * WIDTH + 1) / SHARDS / 1e6:.0f} MB"
        ),
        "resident: recovery coordinator": lambda one: f"{one.recovery:.0f} MB",
        "resident: checkpoint coordinator": lambda one: f"{one.checkpoint:.0f} MB",
        "an epoch": lambda one: f"{one.epoch / 1e3:.1f} kB",
        "priority round, r = 1/8: longest stall": lambda one: f"{1e3 * one.stall:.1f} ms",
        "priority round, r = 1/8: written": lambda one: f"{one.saved / 1e6:.1f} MB",
        "a round of all else that has changed: written": lambda one: f"{one.rest / 1e6:.1f} MB",
        "one of four shards killed: until all blocks serve": lambda one: f"{one.repair:.1f} s",
        "what it owned": lambda one: f"{one.lost / 1e6:.0f} MB",
        "false accusations": lambda one: str(one.accused),
    }
    for name, cell in lines.items():
        grid.add_row(name, *map(cell, found))
    return grid


def _rows_a_block(rows: int, blocks: int | None) -> int:
    return -(-rows // blocks) if blocks else BLOCK_ROWS


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Tables of many rows, size by size.")
    parser.add_argument("--rows", type=int, nargs="+", default=[10**6, 10**7, 10**8])
    parser.add_argument("--calls", type=int, default=20)
    parser.add_argument("--blocks", type=int, help="cut each size into at most so many")
    parser.add_argument("--burners", type=int, default=0, help="processes that each keep one core busy")
    parser.add_argument("--keys", action="store_true", help="rows that are given to keys")
    options = parser.parse_args(arguments)
    burners = [subprocess.Popen(BURN) for _ in range(options.burners)]
    try:
        found = [
            measure_table(rows, options.calls, options.keys, _rows_a_block(rows, options.blocks))
            for rows in options.rows
        ]
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()
    Console(width=150).print(show_figures(found))
    return 1 if any(one.accused for one in found) else 0


if __name__ == "__main__":
    raise SystemExit(main())
