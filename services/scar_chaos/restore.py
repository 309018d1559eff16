"""What a fresh process gets back from the store alone: the newest manifest, every block, every digest."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

import numpy as np

from scar.errors import CorruptCheckpoint, ObjectNotFound, ScarError
from scar.placement import BlockGroup, BlockSource, Epoch
from scar.tables import Job, Table
from scar_chaos.core.counting_job import per_block, torn_blocks
from scar_chaos.oracles.history import ReturnedBlocks
from scar_chaos.oracles.violation import require
from scar_runtime.checkpoint.header_cache import HeaderCache
from scar_runtime.checkpoint.header_reader import read_header
from scar_runtime.checkpoint.manifest import ObjectRef
from scar_runtime.checkpoint.manifest_codec import read_manifest
from scar_runtime.checkpoint.object_reader import read_blocks
from scar_runtime.checkpoint.running_checkpoint import (
    RunningCheckpoint,
    load_newest,
    load_readable,
)
from scar_runtime.store import Store


def restore_tables(store: Store, job: Job, damaged: Collection[str] = ()) -> dict[str, np.ndarray]:
    """One value per block of every table, from the newest manifest.

    ``damaged``: keys of objects that are known to be; of a block that cannot be read from one, x(0) is taken.
    Raises what a service would raise, and :class:`Violation` for a torn block.
    """
    running = _load_running(store, job, damaged)
    arrays = {table.name: restore_table(store, running, table, damaged) for table in job.tables}
    for table in job.tables:
        torn = torn_blocks(table, arrays[table.name])
        require(not torn, f"the checkpoint has torn blocks of table {table.name}: {torn}")
    return {table.name: per_block(table, arrays[table.name]) for table in job.tables}


def _load_running(store: Store, job: Job, damaged: Collection[str]) -> RunningCheckpoint:
    """When every manifest names a damaged object: what a new leader of the checkpoint goes on from."""
    try:
        return load_newest(store, job)
    except (CorruptCheckpoint, ObjectNotFound):
        running = load_readable(store, job, HeaderCache(store, job), 0.0)
        if not set(running.unreadable) <= set(damaged):
            raise
        return running


def restore_table(
    store: Store, running: RunningCheckpoint, table: Table, damaged: Collection[str] = ()
) -> np.ndarray:
    """All of its values, flat."""
    flat = np.empty(table.elements, dtype=table.dtype)
    for origin in running.origins(table.name, np.arange(table.blocks, dtype=np.uint32)):
        ids = origin.group.ids
        values = table.initial(running.job.seed, ids)
        if origin.index >= 0:
            ref = running.objects[origin.index]
            header = running.headers[origin.index]
            try:
                values = read_blocks(store, ref, header, running.job, table.name, ids).values
            except CorruptCheckpoint:
                if header.baselines.isdisjoint(damaged) and ref.key not in damaged:
                    raise
        table.layout.scatter(flat, ids.astype(np.int64), values)
    return flat


def read_returned(store: Store, job: Job, epoch: Epoch) -> list[ReturnedBlocks]:
    """What this epoch put back, from x(0) and from those of its objects that are still there and whole."""
    found = []
    refs = _object_refs(store, epoch.manifest)
    for group in epoch.moved:
        table = job.table(group.table)
        values = None
        if group.source is BlockSource.INITIAL:
            values = table.initial(job.seed, group.ids)
        elif group.object_key in refs:
            values = _read_group(store, job, refs[group.object_key], group)
        if values is not None:
            starts = table.layout.take(group.ids.astype(np.int64)).starts[:-1]
            found.append(ReturnedBlocks(epoch.number, group, values[starts]))
    return found


def _read_group(store: Store, job: Job, ref: ObjectRef, group: BlockGroup) -> np.ndarray | None:
    """None: damaged, or collected meanwhile."""
    with suppress(ScarError):
        header = read_header(store, ref, job)
        return read_blocks(store, ref, header, job, group.table, group.ids).values
    return None


def _object_refs(store: Store, manifest: int) -> dict[str, ObjectRef]:
    """Key -> object of this manifest; empty when the manifest was collected."""
    if not manifest:
        return {}
    try:
        return {ref.key: ref for ref in read_manifest(store, manifest).objects}
    except ScarError:
        return {}
