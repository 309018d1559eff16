"""A copy of blocks as an object holds it: whole blocks, and changed rows by what has the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from scar.blocks import BlockState, Positions
from scar.row_copies import gather_rows
from scar.tables import Table
from scar_ps.core.block_data import CopiedBlocks, select_contents
from scar_ps.core.row_changes import UNKNOWN
from scar_runtime.checkpoint.objects import BlockPayload, ChangedRows


def split_payloads(table: Table, copied: CopiedBlocks) -> Iterator[tuple[BlockState, BlockPayload]]:
    """The groups of an object, each with its part of the state."""
    changes = copied.changes
    if changes is None:
        yield _whole_blocks(table, copied, np.arange(len(copied.state.ids)))
        return
    rows = table.row_counts.take(copied.state.ids.astype(np.int64))
    changed = changes.find_rows(rows)
    blocks = rows.find_blocks(changed)
    for baseline in np.unique(changes.baselines).tolist():
        at = np.flatnonzero(changes.baselines == baseline)
        if baseline == UNKNOWN:
            yield _whole_blocks(table, copied, at)
        else:
            mine = changes.baselines[blocks] == baseline
            numbers = changed[mine] - rows.starts[blocks[mine]]
            counts = np.bincount(blocks[mine], minlength=len(rows))[at]
            of = ChangedRows(counts, numbers, changes.objects[baseline])
            yield _changed_rows(copied, at, changed[mine], rows.elements, of)


def _whole_blocks(table: Table, copied: CopiedBlocks, at: Positions) -> tuple[BlockState, BlockPayload]:
    """Of these blocks of the copy."""
    ids = copied.state.ids
    contents = select_contents(table, ids, copied.contents, at)
    steps = np.zeros(len(at), np.int64) if contents.steps is None else contents.steps
    return replace(copied.state, ids=ids[at]), BlockPayload(contents.values, dict(contents.slots), steps)


def _changed_rows(
    copied: CopiedBlocks, at: Positions, rows: Positions, total: int, changed: ChangedRows
) -> tuple[BlockState, BlockPayload]:
    """These rows, of ``total`` of the copy, of its blocks ``at``."""
    contents = copied.contents
    steps = np.zeros(len(at), np.int64) if contents.steps is None else contents.steps[at]
    values = gather_rows(contents.values, len(contents.values) // total, rows)
    slots = {name: gather_rows(slot, len(slot) // total, rows) for name, slot in contents.slots.items()}
    state = replace(copied.state, ids=copied.state.ids[at])
    return state, BlockPayload(values, slots, steps, changed)
