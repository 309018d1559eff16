"""What training writes to its running checkpoint: bytes a step of rounds, and of compactions.

python -m benchmarks.round_bytes [--rows 1000000 10000000] [--laws uniform zipf] [--steps 800]

Four shards and one worker, which pulls and pushes 20,000 rows of 8 float32 a clock, drawn uniformly or by
Zipf's law; row-wise AdaGrad, 1,024 rows a block, and a round of an eighth of the blocks after every 8 clocks.
docs/adr/029-changed-rows.md has what it printed.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table as Grid

import scar
from benchmarks.rows import ASKED, BLOCK_ROWS, ROUND, SECONDS, SHARDS, WIDTH
from benchmarks.training import start_training
from scar_runtime.store.layout import OBJECTS

EVERY = 8  # clocks
LOOK_SECONDS = 0.05
LAWS = ("uniform", "zipf")


class CompactedBytes(threading.Thread):
    """Notes the size of every object that a compaction has ever written below a folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self._folder = folder
        self._over = threading.Event()
        self._found: dict[str, int] = {}

    def run(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            for path in self._folder.glob(f"*/{OBJECTS}/compact-*"):
                try:
                    self._found[path.name] = path.stat().st_size
                except FileNotFoundError:  # collected at this moment
                    continue

    def end(self) -> int:
        self._over.set()
        self.join()
        return sum(self._found.values())


def measure_training(rows: int, law: str, steps: int) -> tuple[int, int]:
    """Bytes of rounds, and of compactions."""
    rule = scar.adagrad(0.1, rowwise=True)
    init = scar.uniform(-1, 1)
    table = scar.Table("clicks", (rows, WIDTH), rule=rule, init=init, blocks=scar.rows(BLOCK_ROWS))
    drawn = np.random.default_rng(1)
    saved = 0
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        compacted = CompactedBytes(Path(folder))
        compacted.start()
        with start_training([table], shards=SHARDS, store=f"file://{folder}") as run:
            for step in range(1, steps + 1):
                asked = draw_rows(drawn, rows, law)
                pulled = run.worker.pull("clicks", rows=asked)
                run.step(lambda: run.worker.push("clicks", 0.01 * pulled, rows=asked))  # noqa: B023
                if step % EVERY == 0:
                    saved += run.cluster.endpoints.checkpoint.Trigger(ROUND, timeout=SECONDS).bytes
        return saved, compacted.end()


def draw_rows(drawn: np.random.Generator, rows: int, law: str) -> NDArray[np.int64]:
    """Of a step. Zipf's law with exponent 1: the first row is the most frequent."""
    if law == "uniform":
        return drawn.integers(0, rows, ASKED)
    return (rows ** drawn.random(ASKED)).astype(np.int64) - 1


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Bytes that rounds and compactions write in training.")
    parser.add_argument("--rows", type=int, nargs="+", default=[10**6, 10**7])
    parser.add_argument("--laws", nargs="+", choices=LAWS, default=LAWS)
    parser.add_argument("--steps", type=int, default=800)
    options = parser.parse_args(arguments)
    grid = Grid(title=f"MB a step of {options.steps} steps")
    for column in ("rows", "law", "rounds", "compactions"):
        grid.add_column(column, justify="right")
    for rows in options.rows:
        for law in options.laws:
            found = measure_training(rows, law, options.steps)
            grid.add_row(f"{rows:,}", law, *[f"{part / options.steps / 1e6:.2f}" for part in found])
    Console(width=150).print(grid)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
