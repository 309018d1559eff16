"""What is kept of blocks beside their values, as it is pulled with them (docs/protocol.md §15)."""

from __future__ import annotations

from copy import copy
from dataclasses import replace

from scar.block_parts import SLOT, STEPS, part_layout, parts_beside
from scar.errors import InvalidRequest
from scar.v1.ps_pb2 import PullRequest
from scar.wire.small_message import HEADER_BYTES
from scar_ps.core.block_store import BlockStore, StoreSlice


def slot_tables(request: PullRequest) -> frozenset[str]:
    """Of which slots are wanted. Raises :class:`InvalidRequest` where they are wanted otherwise than as they
    are now, of whole blocks.
    """
    asked = [one for one in request.tables if one.slots]
    for one in asked:
        if one.rows or one.keys or one.bfloat16 or request.exact_clock:
            raise InvalidRequest(
                f"slots of table {one.table} are of whole blocks, as they are now",
                "Leave out rows, keys, bfloat16 and exact_clock",
            )
    return frozenset(one.table for one in asked)


def show_parts(part: StoreSlice) -> dict[str, StoreSlice]:
    """Each part of these blocks, by name, in the place of their values, to be read.

    Raises :class:`InvalidRequest` for a table with keys.
    """
    store = part.store
    if store.table.keys is not None:
        raise InvalidRequest(f"slots of table {store.table.name}, which has keys, are not pulled")
    return {name: replace(part, store=_show_part(store, name)) for name in parts_beside(store.table)}


def count_parts(part: StoreSlice) -> int:
    """Bytes of all of them in an answer, with their headers. Raises as :func:`show_parts`."""
    shown = show_parts(part).values()
    return sum(one.layout.elements * one.store.values.dtype.itemsize + HEADER_BYTES for one in shown)


def _show_part(store: BlockStore, part: str) -> BlockStore:
    shown = copy(store)
    shown.layout = part_layout(store.table, part, store.row_counts)
    shown.values = store.steps if part == STEPS else store.slots[part.removeprefix(SLOT)]
    if part == STEPS:
        shown.places = None
    return shown
