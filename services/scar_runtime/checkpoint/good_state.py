"""What a job that has diverged can go back to: the newest state of before, all of whose values are numbers.

A running checkpoint mixes clocks, so a state is of before a clock when none of its blocks is of that clock or
a later one.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from scar.blocks import BlockState
from scar.errors import CorruptCheckpoint, Diverged, ObjectNotFound
from scar.tables import Job
from scar_runtime.checkpoint.damage import split_ids
from scar_runtime.checkpoint.header_cache import HeaderCache
from scar_runtime.checkpoint.manifest_codec import read_manifest
from scar_runtime.checkpoint.object_reader import read_blocks
from scar_runtime.checkpoint.running_checkpoint import RunningCheckpoint, load_running
from scar_runtime.store.layout import MANIFESTS
from scar_runtime.store.records import numbers, reread


def newest_good(headers: HeaderCache, below: int, full: bool) -> int:
    """Number of the newest manifest that can be read, none of whose blocks is of clock ``below`` or later
    (see :func:`first_spoilt`), and none of whose values is NaN or infinite, unless the table allows it; 0:
    x(0). ``full``: of consistent ones.

    Every value is read. Raises :class:`Diverged` where nothing of before is kept.
    """
    kept = numbers(headers.store, MANIFESTS)
    spoilt = first_spoilt(headers.job, below)
    for number in reversed(kept):
        try:
            manifest = reread(partial(read_manifest, headers.store, number))
            if full and not manifest.full:
                continue
            running = load_running(headers.store, headers.job, manifest, headers)
            if newest_clock(running) < spoilt and is_finite(headers, running):
                return number
        except (CorruptCheckpoint, ObjectNotFound):
            continue
    if below > 0 and kept[:1] in ([], [1]):  # none was collected: what was before them all is x(0)
        return 0
    raise Diverged(
        f"nothing that was saved before clock {below} is kept and finite: {len(kept)} manifests are there",
        "Keep more states, by Checkpoint(keep=...), or save less often; or lower the learning rate and start"
        " anew",
    )


def first_spoilt(job: Job, clock: int) -> int:
    """The lowest clock whose blocks may have what spoilt the loss of this ``clock``, at least 1.

    BSP: that clock. SSP: blocks have pushes of workers that are ahead by the staleness, and who hears of the
    loss is ahead by as much of whose push it was. ASP: nobody knows; taken as for BSP.
    """
    return max(1, clock - 1 - 2 * job.staleness) if job.consistency == "ssp" else clock


def newest_clock(running: RunningCheckpoint) -> int:
    """The highest of its blocks; x(0) is of clock 0."""
    return max((group.clock for _, group in _live_groups(running)), default=0)


def is_finite(headers: HeaderCache, running: RunningCheckpoint) -> bool:
    """Whether every value is a number, but for tables that allow others. Raises :class:`CorruptCheckpoint`
    and :class:`ObjectNotFound`.
    """
    return all(
        _is_group_finite(headers, running, index, group)
        for index, group in _live_groups(running)
        if not headers.job.table(group.table).allow_nonfinite
    )


def _live_groups(running: RunningCheckpoint) -> list[tuple[int, BlockState]]:
    """Blocks that come from an object, by its index."""
    return [
        (origin.index, origin.group)
        for table in running.job.tables
        for origin in running.origins(table.name, np.arange(table.blocks, dtype=np.uint32))
        if origin.index >= 0
    ]


def _is_group_finite(headers: HeaderCache, running: RunningCheckpoint, index: int, group: BlockState) -> bool:
    ref = running.objects[index]
    header = running.headers[index]
    for ids in split_ids(headers.job.table(group.table), group.ids):
        found = read_blocks(headers.store, ref, header, headers.job, group.table, ids)
        if not all(np.isfinite(array).all() for array in (found.values, *found.slots.values())):
            return False
    return True
