"""What is kept of blocks beside values, by the names that it has on the wire: "slot:..." and "steps"."""

from __future__ import annotations

from typing import Any

import numpy as np

from scar.blocks import Layout
from scar.tables import Table

VALUES = "values"
STEPS = "steps"
SLOT = "slot:"


def parts_beside(table: Table) -> tuple[str, ...]:
    """What a step of the table's rule needs of a block beside its values, and leaves there."""
    steps = (STEPS,) if table.rule.counts_steps else ()
    return (*(SLOT + name for name in table.rule.slots), *steps)


def part_layout(table: Table, part: str, rows: Layout | None = None) -> Layout:
    """All blocks of a part, values included. ``rows``: of blocks with so many rows instead."""
    if part == STEPS:
        return Layout.even(len(table.row_counts if rows is None else rows), 1)
    return table.slot_layout(part.removeprefix(SLOT), rows)


def part_dtype(table: Table, part: str) -> np.dtype[Any]:
    return np.dtype(np.int64) if part == STEPS else table.dtype
