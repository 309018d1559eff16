"""`scar checkpoints export`: the tables of a checkpoint, or of one clock, as one safetensors file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from scar.blocks import Array, Ids
from scar.errors import ConfigError
from scar.keyed_rows import KEY_SLOT, USED_SLOT, KeyedValues, pack_stored, split_stored
from scar.reader import connect
from scar.snapshots import name_arrays
from scar.tables import Table
from scar_cli.checkpoints import JobStore
from scar_cli.clusters import ClusterTarget, DirectTarget
from scar_cli.output import format_size, make_console
from scar_runtime.checkpoint.initial_arrays import read_initial
from scar_runtime.checkpoint.object_reader import read_blocks
from scar_runtime.checkpoint.objects import BlockPayload
from scar_runtime.checkpoint.running_checkpoint import RunningCheckpoint


def export_tables(job: JobStore, number: int, file: Path) -> None:
    """Write every table in its shape; a block that was never saved has its initial value."""
    with job.pinned([number] if number else job.manifests()[-job.job.checkpoint.keep :]):
        running = job.running(number)
        tables = name_arrays({table.name: assemble_table(job, running, table) for table in job.job.tables})
    notes = {
        "job": job.job.name,
        "manifest": str(running.manifest.number),
        "clock": str(running.manifest.clock),
    }
    _write_tables(tables, notes, file)


def export_running(target: ClusterTarget, clock: str, file: Path) -> None:
    """Write what the shards hold at exactly one clock: this number, or "next": the next that all can say.

    Raises :class:`ConfigError` where they cannot be reached from here, and as :meth:`scar.Reader.snapshot`.
    """
    if not isinstance(target, DirectTarget):
        raise ConfigError(
            "the shards of a release cannot be reached from outside",
            "Use reader.snapshot() in a pod of its namespace, or leave out --clock",
        )
    if clock != "next" and not clock.isdecimal():
        raise ConfigError(f"--clock {clock!r} is no clock", "Give its number, or next")
    with connect(target.recovery) as reader:
        snapshot = reader.snapshot(clock=int(clock) if clock != "next" else None)
    notes = {"job": snapshot.job, "epoch": str(snapshot.epoch), "clock": str(snapshot.clock)}
    _write_tables(name_arrays(snapshot.tables), notes, file)


def _write_tables(tables: dict[str, Array], notes: dict[str, str], file: Path) -> None:
    """``notes``: which model this is."""
    try:
        from safetensors.numpy import save_file
    except ImportError as error:
        raise ConfigError(
            "the package safetensors is not installed", "Run: pip install 'scar-ps[cli]'"
        ) from error
    draft = file.with_name(f".{file.name}.tmp")
    save_file(tables, draft, notes)
    draft.replace(file)
    about = ", ".join(f"{name} {value}" for name, value in notes.items() if name != "job")
    make_console().print(
        f"[green]wrote[/] {file}: {', '.join(tables)} at {about}, {format_size(file.stat().st_size)}"
    )


def assemble_table(job: JobStore, running: RunningCheckpoint, table: Table) -> Any:
    """The whole table in its shape, or :class:`scar.KeyedValues`.

    Raises :class:`scar.errors.CorruptCheckpoint` for a damaged block."""
    if table.keys is not None:
        return _assemble_keys(job, running, table)
    ids = np.arange(table.blocks, dtype=np.uint32)
    source = running.sources(table.name, ids)
    flat = np.empty(table.elements, dtype=table.dtype)
    for index in np.unique(source).tolist():
        mine = ids[source == index]
        if index < 0:
            values = table.initial(job.job.seed, mine, read_initial(job.store, table, mine))
        else:
            values = _saved_blocks(job, running, table, index, mine).values
        table.layout.scatter(flat, mine.astype(np.int64), values)
    return flat.reshape(table.shape)


def _assemble_keys(job: JobStore, running: RunningCheckpoint, table: Table) -> KeyedValues:
    """Blocks that were never saved have the rows with which the job began, if it was given any."""
    ids = np.arange(table.blocks, dtype=np.uint32)
    source = running.sources(table.name, ids)
    pieces = [np.empty((0, table.stored.row_elements), table.dtype)]
    for index in np.unique(source).tolist():
        mine = ids[source == index]
        values, slots = _keyed_blocks(job, running, table, index, mine)
        if slots:
            keys, used = (slots[name].view(np.uint64) for name in (KEY_SLOT, USED_SLOT))
            pieces.append(pack_stored(values.reshape(-1, table.row_elements), keys, used))
    return split_stored(np.concatenate(pieces))


def _keyed_blocks(
    job: JobStore, running: RunningCheckpoint, table: Table, index: int, ids: Ids
) -> tuple[Array, Mapping[str, Array]]:
    """Values and slots of these blocks; ``index``: of the object that has them, -1: x(0) has."""
    if index < 0:
        given = read_initial(job.store, table, ids)
        return table.initial(job.job.seed, ids, given), table.initial_slots(ids, given)
    found = _saved_blocks(job, running, table, index, ids)
    return found.values, found.slots


def _saved_blocks(
    job: JobStore, running: RunningCheckpoint, table: Table, index: int, ids: Ids
) -> BlockPayload:
    """Of an object, by its index."""
    ref = running.objects[index]
    header = running.headers[index]
    return read_blocks(job.store, ref, header, job.job, table.name, ids)
