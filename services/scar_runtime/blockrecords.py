"""Records of blocks: values, slots in the rule's order, and the int64 step side by side, so that a block is one range of bytes.

Blocks of one size are rows of a structured array; others are moved by index arrays. Nothing here loops over blocks in Python.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from scar.blocks import Array, Layout, Positions
from scar.tables import Table
from scar_runtime.store import Buffer

Checksums = NDArray[np.uint32]
Sizes = NDArray[np.int64]

STEP_BYTES = 8
_COPY_BELOW = 1024  # bytes of a record up to which copying it for its CRC is cheaper than making a view of it
_MAX_ROW = 1 << 30  # numpy's limit for one structured element is 2 GiB


def record_sizes(table: Table, sizes: Sizes) -> Sizes:
    """Bytes of the records of blocks with these sizes (elements)."""
    return sizes * (table.dtype.itemsize * (1 + len(table.rule.slots))) + STEP_BYTES


def checksums(raw: Buffer, starts: Positions, sizes: Sizes) -> Checksums:
    """CRC32 of each record ``raw[start : start + size]``."""
    view = memoryview(raw)
    width = int(sizes[0]) if len(sizes) else 0
    if 0 < width < _COPY_BELOW and width * len(sizes) == len(view) and bool((sizes == width).all()):
        records = chain.from_iterable(struct.iter_unpack(f"{width}s", view))
        return np.fromiter(map(zlib.crc32, records), dtype=np.uint32, count=len(sizes))
    slices = map(slice, starts.tolist(), (starts + sizes).tolist())
    return np.fromiter(map(zlib.crc32, map(view.__getitem__, slices)), dtype=np.uint32, count=len(sizes))


def pack(table: Table, sizes: Sizes, arrays: Sequence[Array], steps: NDArray[np.int64]) -> memoryview:
    """Records of blocks with these sizes from their packed arrays (values, then slots) and steps."""
    row = _row(table, sizes)
    if row is not None:
        records = np.empty(len(sizes), dtype=row)
        for column, array in enumerate(arrays):
            records[f"f{column}"] = array.reshape(len(sizes), -1)
        records["step"] = steps
        return records.view(np.uint8).data
    fields, columns = _fields(table, sizes), len(arrays) + 1
    words = np.empty(fields.elements, dtype=_word(table))
    rows = np.arange(len(sizes), dtype=np.int64) * columns
    for column, array in enumerate(arrays):
        fields.scatter(words, rows + column, np.ascontiguousarray(array).view(words.dtype))
    fields.scatter(words, rows + len(arrays), np.ascontiguousarray(steps, dtype="<i8").view(words.dtype))
    return words.view(np.uint8).data


def unpack(table: Table, sizes: Sizes, raw: Buffer, rows: Positions) -> tuple[list[Array], NDArray[np.int64]]:
    """Arrays (values, then slots) and steps of the records ``rows`` (ascending) out of the bytes of blocks with these sizes.

    Blocks of one size come as rows of a matrix, which may be a view of ``raw``; others packed in a flat array.
    """
    count = 1 + len(table.rule.slots)
    row = _row(table, sizes)
    if row is not None:
        records = np.frombuffer(raw, dtype=row)
        picked = records if len(rows) == len(sizes) else records[rows]
        return [picked[f"f{column}"] for column in range(count)], picked["step"]
    fields = _fields(table, sizes)
    words = np.frombuffer(raw, dtype=_word(table))
    arrays = [fields.gather(words, rows * (count + 1) + column).view(table.dtype) for column in range(count)]
    return arrays, fields.gather(words, rows * (count + 1) + count).view("<i8")


def _row(table: Table, sizes: Sizes) -> np.dtype[np.void] | None:
    """One record as a packed structured type, when all have one size."""
    width = Layout(sizes).width
    if not width or width * table.dtype.itemsize * (1 + len(table.rule.slots)) > _MAX_ROW:
        return None
    columns = [(f"f{column}", table.dtype, (width,)) for column in range(1 + len(table.rule.slots))]
    return np.dtype([*columns, ("step", "<i8")])


def _fields(table: Table, sizes: Sizes) -> Layout:
    """Records as a layout of their fields, counted in words of the table's element size."""
    fields = np.repeat(sizes[:, None], 2 + len(table.rule.slots), axis=1)
    fields[:, -1] = STEP_BYTES // table.dtype.itemsize
    return Layout(fields.reshape(-1))


def _word(table: Table) -> np.dtype[np.generic]:
    return np.dtype(f"<u{table.dtype.itemsize}")
