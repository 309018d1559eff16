"""What a fresh process gets back from the store alone: the newest manifest, every block, every CRC."""

from __future__ import annotations

import numpy as np

from scar.tables import Job, Table
from scar_chaos.checkers import demand
from scar_chaos.counting import per_block, torn
from scar_runtime.objects import read_blocks
from scar_runtime.running import RunningCheckpoint, load_newest
from scar_runtime.store import Store


def restored(store: Store, job: Job) -> dict[str, np.ndarray]:
    """One value per block of every table. Raises what a service would raise, and :class:`Violation` for a torn block."""
    running = load_newest(store, job)
    arrays = {table.name: _table(store, running, table) for table in job.tables}
    for table in job.tables:
        broken = torn(table, arrays[table.name])
        demand(not broken, f"the checkpoint has torn blocks of table {table.name}: {broken}")
    return {table.name: per_block(table, arrays[table.name]) for table in job.tables}


def _table(store: Store, running: RunningCheckpoint, table: Table) -> np.ndarray:
    flat = np.empty(table.elements, dtype=table.dtype)
    for origin in running.origins(table.name, np.arange(table.blocks, dtype=np.uint32)):
        ids = origin.group.ids
        if origin.index < 0:
            values = table.initial(running.job.seed, ids)
        else:
            ref, header = running.objects[origin.index], running.headers[origin.index]
            values = read_blocks(store, ref, header, running.job, table.name, ids).values
        table.layout.scatter(flat, ids.astype(np.int64), values)
    return flat.reshape(table.shape)
