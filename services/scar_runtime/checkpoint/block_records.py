"""Records of blocks: values, slots in the rule's order, and the int64 step side by side, so that a block is
one range of bytes.

Blocks of one size are rows of a structured array; others are moved by index arrays. Nothing here loops over
blocks in Python.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scar.blocks import Array, Layout, Positions
from scar.tables import Table
from scar_runtime.store import Buffer

Sizes = NDArray[np.int64]

STEP_BYTES = 8
DIGEST_BYTES = 32  # of SHA-256
_MAX_ROW = 1 << 30  # numpy's limit for one structured element is 2 GiB


@dataclass(frozen=True)
class RecordFormat:
    """How records of a table's blocks, or of some rows of each, look.

    ``widths``: elements of a row in the values, in each slot in the rule's order, and in what else a row has.
    Sizes of blocks are their elements in the values, those of the rows that are in the record.
    """

    dtype: np.dtype[np.generic]
    widths: tuple[int, ...]

    def record_sizes(self, sizes: Sizes) -> Sizes:
        """Bytes of the records of blocks with these sizes."""
        elements: Sizes = sizes + sizes // self.widths[0] * sum(self.widths[1:])
        return elements * self.dtype.itemsize + STEP_BYTES

    def array_sizes(self, sizes: Sizes) -> Sizes:
        """int64[blocks, widths]: elements of each array of blocks with these sizes."""
        rows = sizes // self.widths[0]
        return np.stack([rows * width for width in self.widths], axis=1)

    def record_starts(self, sizes: Sizes) -> Positions:
        """Byte offsets of the records of blocks with these sizes, back to back, and the end of the last."""
        starts: Positions = np.zeros(len(sizes) + 1, dtype=np.int64)
        self.record_sizes(sizes).cumsum(out=starts[1:])
        return starts

    @property
    def word(self) -> np.dtype[np.generic]:
        """An unsigned integer as large as an element."""
        return np.dtype(f"<u{self.dtype.itemsize}")


def block_format(table: Table) -> RecordFormat:
    """Of whole blocks."""
    return RecordFormat(table.dtype, (table.row_elements, *map(table.slot_width, table.slots)))


def changed_format(table: Table) -> RecordFormat:
    """Of rows that have changed: behind the slots comes the number in its block of each, as a word."""
    whole = block_format(table)
    return RecordFormat(table.dtype, (*whole.widths, 1))


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


def pack_records(
    form: RecordFormat, sizes: Sizes, arrays: Sequence[Array], steps: NDArray[np.int64]
) -> memoryview:
    """Records of blocks with these sizes from their packed arrays and steps."""
    row = _record_dtype(form, sizes)
    if row is not None:
        records = np.empty(len(sizes), dtype=row)
        for column, array in enumerate(arrays):
            records[f"f{column}"] = array.reshape(len(sizes), -1)
        records["step"] = steps
        return records.view(np.uint8).data
    fields = _field_layout(form, sizes)
    columns = len(arrays) + 1
    words = np.empty(fields.elements, dtype=form.word)
    rows = np.arange(len(sizes), dtype=np.int64) * columns
    for column, array in enumerate(arrays):
        fields.scatter(words, rows + column, np.ascontiguousarray(array).view(words.dtype))
    fields.scatter(words, rows + len(arrays), np.ascontiguousarray(steps, dtype="<i8").view(words.dtype))
    return words.view(np.uint8).data


def unpack_records(
    form: RecordFormat, sizes: Sizes, raw: Buffer, rows: Positions
) -> tuple[list[Array], NDArray[np.int64]]:
    """Arrays and steps of the records ``rows`` (ascending) out of the bytes of blocks with these sizes.

    Blocks of one size come as rows of a matrix, which may be a view of ``raw``; others packed in a flat
    array.
    """
    count = len(form.widths)
    row = _record_dtype(form, sizes)
    if row is not None:
        records = np.frombuffer(raw, dtype=row)
        picked = records if len(rows) == len(sizes) else records[rows]
        return [picked[f"f{column}"] for column in range(count)], picked["step"]
    fields = _field_layout(form, sizes)
    words = np.frombuffer(raw, dtype=form.word)
    arrays = [fields.gather(words, rows * (count + 1) + column).view(form.dtype) for column in range(count)]
    return arrays, fields.gather(words, rows * (count + 1) + count).view("<i8")


def _record_dtype(form: RecordFormat, sizes: Sizes) -> np.dtype[np.void] | None:
    """One record as a packed structured type, when all have one size."""
    width = Layout(sizes).width
    widths = form.array_sizes(np.array([width]))[0].tolist()
    if not width or sum(widths) * form.dtype.itemsize > _MAX_ROW:
        return None
    columns = [(f"f{column}", form.dtype, (width,)) for column, width in enumerate(widths)]
    return np.dtype([*columns, ("step", "<i8")])


def _field_layout(form: RecordFormat, sizes: Sizes) -> Layout:
    """Records as a layout of their fields, counted in words."""
    steps = np.full((len(sizes), 1), STEP_BYTES // form.dtype.itemsize)
    return Layout(np.hstack([form.array_sizes(sizes), steps]).reshape(-1))
