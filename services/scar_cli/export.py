"""`scar checkpoints export`: the tables of a checkpoint as one safetensors file."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from scar.blocks import Array
from scar.errors import ConfigError
from scar.tables import Table
from scar_cli.checkpoints import JobStore
from scar_cli.output import format_size, make_console
from scar_runtime.checkpoint.initial_arrays import read_initial
from scar_runtime.checkpoint.object_reader import read_blocks
from scar_runtime.checkpoint.running_checkpoint import RunningCheckpoint


def export_tables(job: JobStore, number: int, file: Path) -> None:
    """Write every table in its shape; a block that was never saved has its initial value."""
    try:
        from safetensors.numpy import save_file
    except ImportError as error:
        raise ConfigError(
            "the package safetensors is not installed", "Run: pip install 'scar-ps[cli]'"
        ) from error
    with job.pinned([number] if number else job.manifests()[-job.job.checkpoint.keep :]):
        running = job.running(number)
        tables = {table.name: assemble_table(job, running, table) for table in job.job.tables}
    notes = {
        "job": job.job.name,
        "manifest": str(running.manifest.number),
        "clock": str(running.manifest.clock),
    }
    draft = file.with_name(f".{file.name}.tmp")
    save_file(tables, draft, notes)
    draft.replace(file)
    make_console().print(
        f"[green]wrote[/] {file}: {', '.join(tables)} at manifest {notes['manifest']}, clock"
        f" {notes['clock']}, {format_size(file.stat().st_size)}"
    )


def assemble_table(job: JobStore, running: RunningCheckpoint, table: Table) -> Array:
    """The whole table in its shape. Raises :class:`scar.errors.CorruptCheckpoint` for a damaged block."""
    ids = np.arange(table.blocks, dtype=np.uint32)
    source = running.sources(table.name, ids)
    flat = np.empty(table.elements, dtype=table.dtype)
    for index in np.unique(source).tolist():
        mine = ids[source == index]
        if index < 0:
            values = table.initial(job.job.seed, mine, read_initial(job.store, table))
        else:
            values = read_blocks(
                job.store, running.objects[index], running.headers[index], job.job, table.name, mine
            ).values
        table.layout.scatter(flat, mine.astype(np.int64), values)
    return flat.reshape(table.shape)
