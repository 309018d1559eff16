"""Pulls of what is kept of blocks beside their values: slots and steps (docs/protocol.md §15)."""

from __future__ import annotations

from copy import copy
from dataclasses import replace

from scar.block_parts import SLOT, STEPS, part_layout, parts_beside
from scar.errors import InvalidRequest, use_one_of
from scar.v1.ps_pb2 import PullRequest
from scar_ps.core.block_store import BlockStore
from scar_ps.core.pushes import PulledBlocks


def check_parts(request: PullRequest) -> None:
    """Raises :class:`InvalidRequest` where parts are wanted in another way than as they are now."""
    short = {one.table for one in request.tables if one.bfloat16}
    for one in request.tables:
        if one.part and (one.rows or one.keys or one.table in short or request.exact_clock):
            raise InvalidRequest(
                f"{one.part} of table {one.table} is of whole blocks, as they are now",
                "Leave out rows, keys, bfloat16 and exact_clock",
            )


def show_parts(found: PulledBlocks, request: PullRequest) -> PulledBlocks:
    """What was found for this request, with the parts that it asks for in the place of values.

    Raises :class:`InvalidRequest` for one that a table does not have.
    """
    if not any(one.part for one in request.tables):
        return found
    parts = [
        replace(part, store=_show_part(part.store, one.part)) if one.part else part
        for part, one in zip(found.parts, request.tables, strict=True)
    ]
    return replace(found, parts=parts, names=[one.part for one in request.tables])


def _show_part(store: BlockStore, part: str) -> BlockStore:
    """The same blocks, to be read."""
    table = store.table
    known = () if table.keys is not None else parts_beside(table)
    if part not in known:
        advice = use_one_of(part, known) if known else "Pull its values"
        raise InvalidRequest(f"table {table.name} has no part {part!r}", advice)
    shown = copy(store)
    shown.layout = part_layout(table, part, store.row_counts)
    shown.values = store.steps if part == STEPS else store.slots[part.removeprefix(SLOT)]
    return shown
