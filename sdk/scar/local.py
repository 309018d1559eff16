"""What a worker must not lose when it dies: its step, its random numbers, and what its user hands in.

    job = scar.Job("digits", tables=[scar.Table("w", (785, 10)), scar.local_state(workers=4, size=2)], workers=4)

    def train(worker):
        for clock in worker.clocks(limit=100):
            local = worker.recall()                       # of the model that is pulled in this clock
            batch = local.random.integers(0, n, 32)       # the same numbers whenever this step is done again
            ...
            worker.keep(local.values)                     # counts with the pushes of this clock

The state of all workers is a table, a block each. So it is saved with the model, goes back with it, and a restarted worker
finds it where the model is: there is no second kind of checkpoint that could be of another moment.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scar.blocks import Array
from scar.errors import ConfigError
from scar.tables import Job, Table, assign, rows

NAME = "scar.workers"


@dataclass(frozen=True)
class Local:
    """``step``: iterations in the model, which a rollback takes back; a clock never goes back. ``values``: float64 (size,)."""

    step: int
    values: NDArray[np.float64]
    random: np.random.Generator


def local_state(workers: int, size: int = 0) -> Table:
    """The table that :meth:`scar.Worker.recall` and :meth:`scar.Worker.keep` need. ``size``: numbers that the user hands in."""
    return Table(NAME, (workers, 1 + size), dtype="float64", rule=assign(), blocks=rows(1))


def ensure_declared(job: Job, rank: int) -> Table:
    """The table. Raises :class:`ConfigError` when the job has none, or no block for this rank."""
    found = next((table for table in job.tables if table.name == NAME), None)
    if found is None:
        raise ConfigError(f"job {job.name} keeps no local state", "Add scar.local_state(workers=...) to its tables")
    if not 0 <= rank < found.blocks:
        raise ConfigError(f"local_state is for {found.blocks} workers, this one has rank {rank}", "Declare more of them")
    return found


def unpacked(job: Job, rank: int, row: Array) -> Local:
    """``row``: the block of this rank."""
    step = int(row[0])
    key = np.array([job.seed & 0xFFFFFFFFFFFFFFFF, rank], dtype=np.uint64)
    return Local(step, row[1:].astype(np.float64), np.random.Generator(np.random.Philox(key=key, counter=[0, 0, 0, step])))
