"""What it costs a shard to take over blocks from the running checkpoint: processor time, pages, memory.

python -m benchmarks.loads [--megabytes 100] [--held 100] [--piece 8]

In one process, without gRPC: memory for what comes is touched, then the store for the epoch is made
(``BlockStore.copy_for``), then the loads, four at a time, each installed when it is there. Twice: by a store
that keeps its places, and by one that is copied. User time hardly depends on other work on the machine; wall
time does.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager

import numpy as np
from rich.console import Console
from rich.table import Table as Grid

import scar
from scar.blocks import BlockState, Ids
from scar_ps.core.block_arrays import split_runs
from scar_ps.core.block_data import BlockContents
from scar_ps.core.block_store import BlockStore
from scar_ps.epoch_sync import prepare_memory
from scar_runtime.checkpoint.header_reader import read_header
from scar_runtime.checkpoint.manifest import ObjectRef
from scar_runtime.checkpoint.object_reader import read_blocks
from scar_runtime.checkpoint.objects import BlockPayload, EncodedObject, object_ref
from scar_runtime.process.memory import keep_freed
from scar_runtime.store import Store, open_store

WIDTH = 64
ROW_BYTES = 4 * WIDTH
THREADS = 4


@contextmanager
def measured(grid: Grid, what: str) -> Iterator[None]:
    """A line for what happens meanwhile."""
    before, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    yield
    after, wall = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter() - began
    grid.add_row(
        what,
        f"{1e3 * (after.ru_utime - before.ru_utime):.0f} ms",
        f"{1e3 * (after.ru_stime - before.ru_stime):.0f} ms",
        f"{after.ru_minflt - before.ru_minflt:,}",
        f"{1e3 * wall:.0f} ms",
    )


def save_blocks(store: Store, job: scar.Job, lost: Ids) -> ObjectRef:
    """One object, as the dead shard saved it."""
    layout = job.tables[0].layout.take(lost.astype(np.int64))
    state = BlockState("w", lost)
    payload = BlockPayload(np.ones(layout.elements, np.float32), {}, np.zeros(len(lost), np.int64))
    encoded = EncodedObject(job, [(state, payload)])
    store.put_pieces("objects/x", encoded.pieces())
    return object_ref("objects/x", encoded, [state], "ps-1@0", 1, 1)


def take_over(
    grid: Grid, held: BlockStore, gained: np.ndarray, store: Store, ref: ObjectRef, piece: int
) -> None:
    """``gained``: mask over all blocks of the table; ``piece``: bytes of values of one load."""
    every, job = np.arange(held.table.blocks, dtype=np.uint32), scar.Job("bench", [held.table])
    with measured(grid, "memory" if held.memory.place_rows else "memory, all of it"):
        memory = prepare_memory(held.table, every, held)
    with measured(grid, "copy_for"):
        new = held.copy_for(every, gained, lambda: None, memory)
    at = np.flatnonzero(gained)
    header = read_header(store, ref, job)

    def load(start: int, stop: int) -> tuple[int, int, BlockPayload]:
        return start, stop, read_blocks(store, ref, header, job, "w", every[at[start:stop]])

    with measured(grid, "reads and installs"), ThreadPoolExecutor(THREADS) as pool:
        pieces = split_runs(new.packed_layout(at), piece // 4)
        for done in as_completed([pool.submit(load, *bounds) for bounds in pieces]):
            start, stop, found = done.result()
            new.install_blocks(at[start:stop], BlockContents(found.values, found.slots, found.steps))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="A shard takes over blocks from the running checkpoint.")
    parser.add_argument("--megabytes", type=float, default=100.0, help="of values that are gained")
    parser.add_argument("--held", type=float, default=100.0, help="megabytes of values that it has")
    parser.add_argument("--piece", type=float, default=8.0, help="MiB of values of one load")
    options = parser.parse_args(arguments)
    keep_freed()
    rows = int(1e6 * (options.megabytes + options.held)) // ROW_BYTES
    table = scar.Table("w", (rows, WIDTH))
    gained = np.random.default_rng(1).random(rows) < options.megabytes / (options.megabytes + options.held)
    kept = np.flatnonzero(~gained).astype(np.uint32)
    staying = BlockStore(table, kept, memory=prepare_memory(table, kept, None))
    copied = BlockStore(table, kept)
    for held in (staying, copied):
        held.values[...] = held.saved[...] = 1
    grid = Grid(title=f"{gained.sum():,} blocks of {WIDTH} float32; load {os.getloadavg()[0]:.1f}")
    for heading in ("what", "user", "kernel", "pages", "wall"):
        grid.add_column(heading, justify="left" if heading == "what" else "right")
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(f"file://{folder}").under("bench")
        ref = save_blocks(store, scar.Job("bench", [table]), np.flatnonzero(gained).astype(np.uint32))
        for held in (staying, copied):
            take_over(grid, held, gained, store, ref, int(options.piece * (1 << 20)))
    console = Console()
    console.print(grid)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    console.print(f"resident, at most: {most:.0f} MB", highlight=False)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
