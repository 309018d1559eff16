"""A cluster that grows and shrinks while it trains: what moves, and how long training waits.

python -m benchmarks.resize [--rows 1000000 100000000] [--shards 4 8 3]

One worker pulls and pushes 20,000 random rows of 8 float32 a clock (BSP, 1,024 rows a block). Each push adds
1 to what it names, so that every value says how many pushes it has: they are counted and compared.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from threading import Thread

import numpy as np
from rich.console import Console
from rich.table import Table as Grid

import scar
from benchmarks.rows import ASKED, BLOCK_ROWS, WIDTH
from benchmarks.training import BenchTraining, start_training
from scar.placement import Epoch, has_moved
from scar.wire.epoch_messages import epoch_from_proto
from scar_recovery.core.rebalance import TOLERANCE

CHECKED = 200_000  # rows that are compared at once
SECONDS = 600.0
QUIET_STEPS = 30  # before each change
TABLE = "clicks"


@dataclass
class Resize:
    """``took``: seconds until all blocks were level; ``steps``: seconds of each meanwhile, ``before``: when
    nothing moved. ``moved``: bytes of values and slots that have another owner. ``wrong``: rows that have not
    what was pushed.
    """

    rows: int
    shards: tuple[int, int]
    took: float = 0.0
    moved: int = 0
    epochs: int = 0
    before: list[float] = field(default_factory=list)
    steps: list[float] = field(default_factory=list)
    wrong: int = 0
    failures: int = 0


class ResizedTraining:
    """A job that counts what it pushes."""

    def __init__(self, run: BenchTraining, rows: int) -> None:
        self._run = run
        self._rows = rows
        self._drawn = np.random.default_rng(1)
        self._pushed = np.zeros(rows, np.uint16)

    def step(self) -> float:
        """Seconds that it took."""
        asked = np.unique(self._drawn.integers(0, self._rows, ASKED))
        began = time.monotonic()
        self._run.worker.pull(TABLE, rows=asked)
        more = np.full((len(asked), WIDTH), -1, np.float32)
        self._run.step(lambda: self._run.worker.push(TABLE, more, rows=asked))
        self._pushed[asked] += 1
        return time.monotonic() - began

    def epoch(self) -> Epoch:
        status = self._run.cluster.status()
        assert status.epoch is not None
        return epoch_from_proto(status.epoch)

    def count_wrong(self) -> int:
        """Of all rows that were ever pushed."""
        touched = np.flatnonzero(self._pushed)
        wrong = 0
        for rows in np.array_split(touched, max(1, len(touched) // CHECKED)):
            values = self._run.worker.pull(TABLE, rows=rows)
            wrong += int((values != self._pushed[rows, None]).any(axis=1).sum())
        return wrong

    def resize(self, shards: int) -> Resize:
        """Train while the cluster grows, or shrinks, to so many."""
        first = self.epoch()
        found = Resize(self._rows, (len(first.shards), shards))
        found.before = [self.step() for _ in range(QUIET_STEPS)]
        began = time.monotonic()
        change = Thread(target=self._run.cluster.scale_shards, args=(shards,))
        change.start()
        while change.is_alive() or not self._is_level(shards):
            found.steps.append(self.step())
            if time.monotonic() - began > SECONDS:
                raise TimeoutError(f"{shards} shards are not level after {SECONDS:.0f} s")
        found.took = time.monotonic() - began
        last = self.epoch()
        found.epochs = last.number - first.number
        found.moved = self._moved_bytes(first, last)
        found.wrong = self.count_wrong()
        found.failures = len(self._run.cluster.status().failures)
        return found

    def _is_level(self, shards: int) -> bool:
        epoch = self.epoch()
        counts = np.bincount(epoch.owners[TABLE], minlength=len(epoch.shards))[: len(epoch.shards)]
        return len(counts) == shards and int(counts.max() - counts.min()) <= max(1, TOLERANCE * counts.mean())

    def _moved_bytes(self, first: Epoch, last: Epoch) -> int:
        table = self._run.worker.job.table(TABLE)
        return int(table.block_bytes[has_moved(first, last, TABLE)].sum())


def measure_resizes(rows: int, shards: Sequence[int]) -> list[Resize]:
    """From each number of shards to the next."""
    table = scar.Table(TABLE, (rows, WIDTH), rule=scar.sgd(1.0), blocks=scar.rows(BLOCK_ROWS))
    with start_training([table], shards=shards[0]) as run:
        training = ResizedTraining(run, rows)
        return [training.resize(after) for _, after in pairwise(shards)]


def show_resizes(found: Sequence[Resize]) -> Grid:
    """A row for each."""
    grid = Grid(title=f"A table of rows of {WIDTH} float32, {ASKED:,} a call, {BLOCK_ROWS} a block, BSP")
    for name in (
        "rows",
        "shards",
        "seconds",
        "moved",
        "epochs",
        "a step",
        "meanwhile",
        "longest",
        "wrong",
        "failures",
    ):
        grid.add_column(name, justify="right")
    for one in found:
        grid.add_row(
            f"{one.rows:,}",
            f"{one.shards[0]} to {one.shards[1]}",
            f"{one.took:.1f}",
            f"{one.moved / 1e6:,.0f} MB",
            str(one.epochs),
            f"{1e3 * statistics.median(one.before):.0f} ms",
            f"{1e3 * statistics.median(one.steps):.0f} ms",
            f"{1e3 * max(one.steps):,.0f} ms",
            str(one.wrong),
            str(one.failures),
        )
    return grid


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Grow and shrink a cluster that trains.")
    parser.add_argument("--rows", type=int, nargs="+", default=[10**6, 10**7, 10**8])
    parser.add_argument("--shards", type=int, nargs="+", default=[4, 8, 3])
    options = parser.parse_args(arguments)
    found = [one for rows in options.rows for one in measure_resizes(rows, options.shards)]
    Console(width=140).print(show_resizes(found))
    return 1 if any(one.wrong or one.failures for one in found) else 0


if __name__ == "__main__":
    raise SystemExit(main())
