"""What the store gives back at any moment, by the services' own code (G5)."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from scar.blocks import Array, positions_of
from scar.errors import ScarError
from scar.placement import BlockGroup, BlockSource
from scar.tables import Job
from scar_chaos.restore import restore_table
from scar_runtime.checkpoint.header_reader import read_header
from scar_runtime.checkpoint.manifest import Manifest
from scar_runtime.checkpoint.object_reader import read_blocks
from scar_runtime.checkpoint.objects import ObjectHeader
from scar_runtime.checkpoint.running_checkpoint import load_newest, load_running
from scar_runtime.store import Store
from tests.simulation.oracles.store_view import DirectHeaders


def restore_job(store: Store, job: Job, damaged: Collection[str] = ()) -> dict[str, Array]:
    """Every block of every table from the newest manifest. Raises what the services would; for a block of a
    ``damaged`` object x(0) is taken.
    """
    running = load_newest(store, job, DirectHeaders(store, job))
    return {table.name: restore_table(store, running, table, damaged) for table in job.tables}


def restore_manifest(store: Store, job: Job, manifest: Manifest) -> dict[str, Array]:
    """The same from this one."""
    running = load_running(store, job, manifest, DirectHeaders(store, job))
    return {table.name: restore_table(store, running, table) for table in job.tables}


def check_restorable(store: Store, job: Job, damaged: Collection[str] = ()) -> list[str]:
    """A restorable running checkpoint exists at every moment."""
    try:
        restore_job(store, job, damaged)
    except ScarError as error:
        if not damaged:
            return [f"the newest checkpoint cannot be restored: {type(error).__name__}: {error}"]
    return []


def read_group(store: Store, job: Job, manifest: Manifest | None, group: BlockGroup) -> Array | None:
    """What an epoch gives to these blocks, packed; None: it comes out of a shard's memory, or is damaged."""
    table = job.table(group.table)
    if group.source is BlockSource.INITIAL:
        return table.initial(job.seed, group.ids)
    refs = [ref for ref in (manifest.objects if manifest else ()) if ref.key == group.object_key]
    if not refs:
        return None
    layout = table.layout.take(group.ids.astype(np.int64))
    packed: Array = np.zeros(layout.elements, table.dtype)
    try:
        for section in read_header(store, refs[0], job).sections:
            inside = group.ids[positions_of(section.group.ids, group.ids) >= 0]
            if section.group.table != group.table or not len(inside):
                continue
            alone = ObjectHeader((section,))  # more sections would be read by threads
            values = read_blocks(store, refs[0], alone, job, group.table, inside).values
            layout.scatter(packed, positions_of(group.ids, inside), values)
    except ScarError:
        return None
    return packed
