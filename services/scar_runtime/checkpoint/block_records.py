"""Records of blocks: values, slots in the rule's order, and the int64 step side by side, so that a block is
one range of bytes.

Blocks of one size are rows of a structured array; others are moved by index arrays. Nothing here loops over
blocks in Python.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from scar.blocks import Array, Layout, Positions
from scar.tables import Table
from scar_runtime.store import Buffer

Sizes = NDArray[np.int64]

STEP_BYTES = 8
DIGEST_BYTES = 32  # of SHA-256
_MAX_ROW = 1 << 30  # numpy's limit for one structured element is 2 GiB


def record_sizes(table: Table, sizes: Sizes) -> Sizes:
    """Bytes of the records of blocks with these sizes (elements)."""
    of_slots = sum(map(table.slot_width, table.slots))  # for each row
    elements: Sizes = sizes + sizes // table.row_elements * of_slots
    return elements * table.dtype.itemsize + STEP_BYTES


def array_sizes(table: Table, sizes: Sizes) -> Sizes:
    """int64[blocks, 1 + slots]: elements of the values and of each slot of blocks with these sizes."""
    rows = sizes // table.row_elements
    slots = [rows * table.slot_width(slot) for slot in table.slots]
    return np.stack([sizes, *slots], axis=1)


def record_starts(table: Table, sizes: Sizes) -> Positions:
    """Byte offsets of the records of blocks with so many elements, back to back, and the end of the last."""
    starts: Positions = np.zeros(len(sizes) + 1, dtype=np.int64)
    record_sizes(table, sizes).cumsum(out=starts[1:])
    return starts


def segment_bounds(starts: Positions, limit: int) -> Positions:
    """How blocks whose records start at these bytes (the end of the last one as well) share digests.

    Records that start in the same ``limit`` bytes are one segment: the first block of each, and the number of
    blocks.
    """
    cells = starts[:-1] // limit
    bounds = np.flatnonzero(cells[1:] != cells[:-1]) + 1
    return np.concatenate(([0], bounds, [len(cells)])) if len(cells) else np.zeros(1, dtype=np.int64)


def segment_digests(raw: Buffer, begin: Positions, end: Positions) -> list[bytes]:
    """SHA-256 of each ``raw[begin : end]``."""
    view = memoryview(raw)
    slices = map(slice, begin.tolist(), end.tolist())
    return [hashlib.sha256(view[one]).digest() for one in slices]


def pack_records(table: Table, sizes: Sizes, arrays: Sequence[Array], steps: NDArray[np.int64]) -> memoryview:
    """Records of blocks with these sizes from their packed arrays (values, then slots) and steps."""
    row = _record_dtype(table, sizes)
    if row is not None:
        records = np.empty(len(sizes), dtype=row)
        for column, array in enumerate(arrays):
            records[f"f{column}"] = array.reshape(len(sizes), -1)
        records["step"] = steps
        return records.view(np.uint8).data
    fields = _field_layout(table, sizes)
    columns = len(arrays) + 1
    words = np.empty(fields.elements, dtype=_word_dtype(table))
    rows = np.arange(len(sizes), dtype=np.int64) * columns
    for column, array in enumerate(arrays):
        fields.scatter(words, rows + column, np.ascontiguousarray(array).view(words.dtype))
    fields.scatter(words, rows + len(arrays), np.ascontiguousarray(steps, dtype="<i8").view(words.dtype))
    return words.view(np.uint8).data


def unpack_records(
    table: Table, sizes: Sizes, raw: Buffer, rows: Positions
) -> tuple[list[Array], NDArray[np.int64]]:
    """Arrays (values, then slots) and steps of the records ``rows`` (ascending) out of the bytes of blocks
    with these sizes.

    Blocks of one size come as rows of a matrix, which may be a view of ``raw``; others packed in a flat
    array.
    """
    count = 1 + len(table.slots)
    row = _record_dtype(table, sizes)
    if row is not None:
        records = np.frombuffer(raw, dtype=row)
        picked = records if len(rows) == len(sizes) else records[rows]
        return [picked[f"f{column}"] for column in range(count)], picked["step"]
    fields = _field_layout(table, sizes)
    words = np.frombuffer(raw, dtype=_word_dtype(table))
    arrays = [fields.gather(words, rows * (count + 1) + column).view(table.dtype) for column in range(count)]
    return arrays, fields.gather(words, rows * (count + 1) + count).view("<i8")


def _record_dtype(table: Table, sizes: Sizes) -> np.dtype[np.void] | None:
    """One record as a packed structured type, when all have one size."""
    width = Layout(sizes).width
    widths = array_sizes(table, np.array([width]))[0].tolist()
    if not width or sum(widths) * table.dtype.itemsize > _MAX_ROW:
        return None
    columns = [(f"f{column}", table.dtype, (width,)) for column, width in enumerate(widths)]
    return np.dtype([*columns, ("step", "<i8")])


def _field_layout(table: Table, sizes: Sizes) -> Layout:
    """Records as a layout of their fields, counted in words of the table's element size."""
    steps = np.full((len(sizes), 1), STEP_BYTES // table.dtype.itemsize)
    return Layout(np.hstack([array_sizes(table, sizes), steps]).reshape(-1))


def _word_dtype(table: Table) -> np.dtype[np.generic]:
    return np.dtype(f"<u{table.dtype.itemsize}")
