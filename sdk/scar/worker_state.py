"""What a worker must not lose when it dies: its step, its random numbers, and what its user hands in.

    tables = [scar.Table("w", (785, 10)), scar.worker_state_table(workers=4, size=2)]
    job = scar.Job("digits", tables, workers=4)

    def train(worker):
        for clock in worker.clocks(limit=100):
            state = worker.load_state()  # of the model that is pulled in this clock
            batch = state.rng.integers(0, n, 32)  # the same numbers whenever this step is repeated
            ...
            worker.save_state(state.values)  # counts with the pushes of this clock

The state of all workers is a table, one block each. So it is saved with the model, goes back with it, and a
restarted worker finds it where the model is: there is no second kind of checkpoint that could be of another
moment.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scar.blocks import Array
from scar.errors import ConfigError, InvalidRequest
from scar.tables import Job, Table, assign, rows

STATE_TABLE = "scar.workers"
MAX_STEP = 1 << 53  # above, a float64 does not count by one


@dataclass(frozen=True)
class WorkerState:
    """``step``: iterations in the model, which a rollback takes back; a clock never goes back. ``values``:
    float64 (size,).
    """

    step: int
    values: NDArray[np.float64]
    rng: np.random.Generator


def worker_state_table(workers: int, size: int = 0) -> Table:
    """The table that :meth:`scar.Worker.load_state` and :meth:`scar.Worker.save_state` need.

    ``size``: how many numbers a worker hands to :meth:`scar.Worker.save_state`.
    """
    return Table(STATE_TABLE, (workers, 1 + size), dtype="float64", rule=assign(), blocks=rows(1))


def ensure_declared(job: Job, rank: int) -> Table:
    """The table. Raises :class:`ConfigError` when the job has none, or no block for this rank."""
    found = next((table for table in job.tables if table.name == STATE_TABLE), None)
    if found is None:
        raise ConfigError(
            f"job {job.name} keeps no local state", "Add scar.worker_state_table(workers=...) to its tables"
        )
    if not 0 <= rank < found.blocks:
        raise ConfigError(
            f"worker_state_table is for {found.blocks} workers, this one has rank {rank}",
            "Declare more of them",
        )
    return found


def unpack_state(job: Job, rank: int, row: Array) -> WorkerState:
    """``row``: the block of this rank. Raises :class:`InvalidRequest` for what no worker has saved."""
    if not 0 <= row[0] < MAX_STEP:
        raise InvalidRequest(
            f"rank {rank} is at step {row[0]} by its row of table {STATE_TABLE}",
            "Write that table by worker.save_state alone",
        )
    step = int(row[0])
    key = np.array([job.seed & 0xFFFFFFFFFFFFFFFF, rank], dtype=np.uint64)
    return WorkerState(
        step,
        row[1:].astype(np.float64),
        np.random.Generator(np.random.Philox(key=key, counter=[0, 0, 0, step])),
    )
