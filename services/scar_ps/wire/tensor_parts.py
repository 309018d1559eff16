"""Contents of blocks on the wire between shards, in parts: "values", "slot:<name>"s and "steps".

Each part is one tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from scar.block_parts import SLOT, STEPS, VALUES, part_dtype, part_layout
from scar.blocks import Array, Ids, Positions, RowNames, drop_repeats
from scar.errors import ShapeMismatch
from scar.tables import Table
from scar.v1.ps_pb2 import TensorHeader
from scar.wire.row_names import read_rows
from scar_ps.core.block_data import BlockContents
from scar_ps.core.block_store import BlockStore


def contents_parts(contents: BlockContents) -> dict[str, Array]:
    """By name, in the order in which they are sent."""
    parts: dict[str, Array] = {VALUES: contents.values}
    for name, slot in contents.slots.items():
        parts[SLOT + name] = slot
    if contents.steps is not None:
        parts[STEPS] = contents.steps
    return parts


def parts_of(store: BlockStore) -> dict[str, Callable[[Positions], Array]]:
    """The same of a store: what reads the blocks at some positions."""
    readers: dict[str, Callable[[Positions], Array]] = {
        VALUES: partial(store.gather, store.values, store.layout)
    }
    for name, slot in store.slots.items():
        readers[SLOT + name] = partial(store.gather, slot, store.slot_layout(name))
    return {**readers, STEPS: lambda positions: store.steps[positions]}


def part_names(table: Table) -> set[str]:
    """All parts that the contents of blocks of this table have."""
    return {VALUES, STEPS, *(SLOT + name for name in table.slots)}


def contents_from_parts(parts: Mapping[str, Array]) -> BlockContents:
    """Contents of the parts that are there; others, such as "saved", are left out."""
    slots = {name.removeprefix(SLOT): part for name, part in parts.items() if name.startswith(SLOT)}
    steps = parts[STEPS].astype(np.int64, copy=False) if STEPS in parts else None
    return BlockContents(parts.get(VALUES, np.empty(0)), slots, steps)


def allocate_part(table: Table, ids: Ids, header: TensorHeader) -> Array:
    """An array for one part; its size follows from the ids, not from what the header claims.

    Raises :class:`ShapeMismatch` when the header has another size or dtype.
    """
    array: Array = np.empty(_count_part(table, ids, header), part_dtype(table, header.part))
    if header.bytes != array.nbytes or header.dtype != array.dtype.name:
        raise ShapeMismatch(f"part {header.part!r} of table {table.name} has a wrong size or dtype")
    return array


def _count_part(table: Table, ids: Ids, header: TensorHeader) -> int:
    """Elements of one part."""
    if header.part == STEPS:
        return len(ids)
    rows = read_rows(header, table)
    if rows is not None:
        return len(rows) * table.row_elements
    return part_layout(table, header.part).count_elements(ids)


def pushed_rows(table: Table, ids: Ids, header: TensorHeader) -> RowNames | None:
    """Rows that a part has values of, at least one in each of the blocks ``ids``; None: all rows of them."""
    rows = read_rows(header, table)
    if rows is not None and not np.array_equal(drop_repeats(table.find_blocks(rows)), ids):
        raise ShapeMismatch(f"part {header.part!r} of table {table.name} has rows of other blocks")
    return rows
