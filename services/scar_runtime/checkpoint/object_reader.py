"""Reading blocks from objects of the running checkpoint by range requests, each checked by its digest.

    header = read_header(store, ref, job)
    payload = read_blocks(store, ref, header, job, "w", ids)

Of a block of which only changed rows were saved the others are read from the object that has it whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from operator import ne

import numpy as np
from numpy.typing import NDArray

from scar.blocks import Array, Ids, Layout, Positions, positions_of
from scar.errors import CorruptCheckpoint, ObjectNotFound
from scar.row_copies import scatter_rows
from scar.tables import Job, Table
from scar_runtime.checkpoint.block_records import (
    DIGEST_BYTES,
    Sizes,
    block_format,
    segment_digests,
    unpack_records,
)
from scar_runtime.checkpoint.header_reader import read_header
from scar_runtime.checkpoint.initial_arrays import initial_contents
from scar_runtime.checkpoint.manifest import ObjectRef
from scar_runtime.checkpoint.objects import BlockPayload, ObjectHeader, ObjectSection, cut_range
from scar_runtime.store import Store

# unwanted bytes that are cheaper to read than another request, which costs about 2 ms on either side
GAP_BYTES = 1 << 20
READ_BYTES = 12 << 20  # of one request, about: the records of a load of a shard fit in one
THREADS = 8


@dataclass(frozen=True, eq=False)
class _Range:
    """One request: records ``first`` to ``last`` of a section, whole segments; ``rows`` of these go to
    positions ``to`` of the result.

    ``segments``: number in the section of the segment of each row; ``begin`` and ``end``: of it in the range.
    """

    section: ObjectSection
    start: int
    length: int
    first: int
    last: int
    rows: Positions
    to: Positions
    segments: Positions
    begin: Positions
    end: Positions


def read_blocks(
    store: Store, ref: ObjectRef, header: ObjectHeader, job: Job, table: str, ids: Ids
) -> BlockPayload:
    """State of these blocks (ascending ids), whole, checked by segments. Neighbours are read together, ranges
    in parallel.

    Raises :class:`CorruptCheckpoint` with object, table and block, or :class:`scar.errors.ObjectNotFound`.
    """
    spec = job.table(table)
    ranges, missing = _plan_ranges(header, table, ids)
    if missing.any():
        raise CorruptCheckpoint(f"{ref.key} does not contain block {int(ids[missing][0])} of table {table}")
    reading = _Reading(store, spec, ids)
    for section, to in _positions_by_section(ranges):
        if section.counts is not None:
            reading.place(to, _read_baseline(store, job, header, section, ids[to]))
    if len(ranges) > 1:
        with ThreadPoolExecutor(min(THREADS, len(ranges))) as pool:
            for _ in pool.map(lambda one: _read_range(reading, ref, one), ranges):
                pass
    elif ranges:
        _read_range(reading, ref, ranges[0])
    return reading.payload


def _positions_by_section(ranges: list[_Range]) -> list[tuple[ObjectSection, Positions]]:
    """Which of the wanted blocks come from each section."""
    found: dict[int, tuple[ObjectSection, list[Positions]]] = {}
    for one in ranges:
        found.setdefault(id(one.section), (one.section, []))[1].append(one.to)
    return [(section, np.concatenate(parts)) for section, parts in found.values()]


def _read_baseline(
    store: Store, job: Job, header: ObjectHeader, section: ObjectSection, ids: Ids
) -> BlockPayload:
    """These blocks as they were saved whole, or x(0)."""
    name = section.group.table
    ref = section.baseline
    if ref is None:
        return BlockPayload(*initial_contents(store, job, name, ids), np.zeros(len(ids), np.int64))
    return read_blocks(store, ref, _find_whole(store, job, header, ref), job, name, ids)


def _find_whole(store: Store, job: Job, header: ObjectHeader, ref: ObjectRef) -> ObjectHeader:
    """Of a baseline, what it has of whole blocks. Read once for each header."""
    found = header.baseline_headers.get(ref.key)
    if found is None:
        sections = read_header(store, ref, job).sections
        found = ObjectHeader(tuple(one for one in sections if one.counts is None))
        header.baseline_headers[ref.key] = found
    return found


def verify_object(store: Store, ref: ObjectRef, job: Job) -> ObjectHeader:
    """Read all of it. Raises what :func:`read_header` and :func:`read_blocks` raise."""
    header = read_header(store, ref, job)
    for section in header.sections:
        part = ObjectHeader((section,), header.baseline_headers)
        read_blocks(store, ref, part, job, section.group.table, section.group.ids)
    return header


def _plan_ranges(header: ObjectHeader, table: str, ids: Ids) -> tuple[list[_Range], NDArray[np.bool_]]:
    """Ranges to read, and a mask of the ids that no section holds."""
    ranges: list[_Range] = []
    missing = np.ones(len(ids), dtype=np.bool_)
    for section in header.sections if len(ids) else ():
        if section.group.table != table:
            continue
        held = section.group.ids
        first = int(np.searchsorted(held, ids[0]))
        at = positions_of(held[first : int(np.searchsorted(held, ids[-1], side="right"))], ids)
        to = np.flatnonzero((at >= 0) & missing)
        missing[to] = False
        if len(to):
            ranges += _section_ranges(section, at[to] + first, to)
    return ranges, missing


def _section_ranges(section: ObjectSection, rows: Positions, to: Positions) -> list[_Range]:
    """Requests for the segments with these records (ascending positions in the section): split at wide gaps,
    and every :data:`READ_BYTES`.
    """
    starts = section.record_starts
    bounds = section.segment_bounds
    segments = np.searchsorted(bounds, rows, side="right") - 1
    begin = starts[bounds[segments]]
    end = starts[bounds[segments + 1]]
    far = np.append(True, begin[1:] - end[:-1] > GAP_BYTES)
    piece = (begin - begin[np.flatnonzero(far)][np.cumsum(far) - 1]) // READ_BYTES
    cuts = np.flatnonzero(far | (np.diff(piece, prepend=0) != 0))
    found = []
    for low, high in cut_range(cuts, len(rows)):
        first = int(bounds[segments[low]])
        start = int(begin[low])
        found.append(
            _Range(
                section,
                section.start + start,
                int(end[high - 1]) - start,
                first,
                int(bounds[segments[high - 1] + 1]),
                rows[low:high] - first,
                to[low:high],
                segments[low:high],
                begin[low:high] - start,
                end[low:high] - start,
            )
        )
    return found


def damaged_blocks(store: Store, ref: ObjectRef, header: ObjectHeader, job: Job, table: str, ids: Ids) -> Ids:
    """Which of these blocks (ascending ids) it does not hold, or not as they were written. Every range is
    read once, and of changed rows what has not changed, too.

    Raises :class:`scar.errors.ObjectNotFound`.
    """
    ranges, damaged = _plan_ranges(header, table, ids)
    for one in ranges:
        _, wrong = _read_checked(store, ref, one)
        damaged[one.to[wrong]] = True
    for section, to in _positions_by_section(ranges):
        if section.counts is not None:
            damaged[to] |= _is_baseline_damaged(store, job, header, section, ids[to])
    return ids[damaged]


def _is_baseline_damaged(
    store: Store, job: Job, header: ObjectHeader, section: ObjectSection, ids: Ids
) -> NDArray[np.bool_]:
    """For each of these blocks of a section of changed rows."""
    ref = section.baseline
    if ref is None:
        return np.zeros(len(ids), np.bool_)
    try:
        whole = _find_whole(store, job, header, ref)
        return np.isin(ids, damaged_blocks(store, ref, whole, job, section.group.table, ids))
    except (CorruptCheckpoint, ObjectNotFound):
        return np.ones(len(ids), np.bool_)


def _read_checked(store: Store, ref: ObjectRef, one: _Range) -> tuple[bytes, NDArray[np.bool_]]:
    """The bytes of a range, and which of its rows are in a segment that is not as it was written."""
    raw = store.get_range(ref.key, one.start, one.length)
    first = np.flatnonzero(np.diff(one.segments, prepend=-1))
    found = segment_digests(raw, one.begin[first], one.end[first])
    at = DIGEST_BYTES * one.segments[first]
    expected = map(one.section.digests.__getitem__, map(slice, at.tolist(), (at + DIGEST_BYTES).tolist()))
    wrong = np.array([*map(ne, found, expected)], dtype=np.bool_)
    return raw, np.repeat(wrong, np.diff(first, append=len(one.segments)))


class _Reading:
    """Blocks that are put together from what is read of them. Safe to use from any thread, for other blocks
    in each.
    """

    def __init__(self, store: Store, table: Table, ids: Ids) -> None:
        self.store = store
        self.table = table
        at = ids.astype(np.int64)
        self._rows = table.row_counts.take(at)
        self._layouts = [layout.take(at) for layout in (table.layout, *map(table.slot_layout, table.slots))]
        arrays = [np.empty(layout.elements, dtype=table.dtype) for layout in self._layouts]
        slots = dict(zip(table.slots, arrays[1:], strict=True))
        self.payload = BlockPayload(arrays[0], slots, np.empty(len(ids), dtype=np.int64))
        self._arrays = arrays

    def place(self, to: Positions, blocks: BlockPayload) -> None:
        """Whole blocks, which are not copied where they are all."""
        arrays = [blocks.values, *(blocks.slots[name] for name in self.table.slots)]
        if len(to) == len(self.payload.steps):
            self.payload = blocks
            self._arrays = arrays
        else:
            self.place_arrays(to, arrays)
            self.payload.steps[to] = blocks.steps

    def place_arrays(self, to: Positions, arrays: Sequence[Array]) -> None:
        """Those of whole blocks, packed, or rows of a matrix."""
        for layout, target, array in zip(self._layouts, self._arrays, arrays, strict=True):
            _place_blocks(layout, target, to, array)

    def place_rows(self, to: Positions, counts: Sizes, rows: Positions, arrays: Sequence[Array]) -> bool:
        """Over blocks that were placed: ``rows`` are numbers in their block. False: one has no such row."""
        if (rows >= np.repeat(self._rows.sizes[to], counts)).any():
            return False
        at = np.repeat(self._rows.starts[to], counts) + rows
        for target, array, width in zip(self._arrays, arrays, self._widths, strict=True):
            scatter_rows(target, width, at, array.reshape(-1))
        return True

    @cached_property
    def _widths(self) -> tuple[int, ...]:
        return block_format(self.table).widths


def _read_range(reading: _Reading, ref: ObjectRef, one: _Range) -> None:
    section = one.section
    ids = section.group.ids
    name = reading.table.name
    raw, wrong = _read_checked(reading.store, ref, one)
    if len(raw) < one.length:
        raise CorruptCheckpoint(f"{ref.key} is cut off at byte {one.start + len(raw)} of {ref.bytes}")
    if wrong.any():
        block = int(ids[one.first + one.rows[wrong][0]])
        raise CorruptCheckpoint(
            f"{ref.key}: block {block} of table {name} is damaged: its digest does not fit"
        )
    arrays, steps = unpack_records(section.form, section.sizes[one.first : one.last], raw, one.rows)
    if section.counts is None:
        reading.place_arrays(one.to, arrays)
    else:
        rows = arrays.pop().reshape(-1).view(section.form.word).astype(np.int64)
        if not reading.place_rows(one.to, section.counts[one.first + one.rows], rows, arrays):
            raise CorruptCheckpoint(f"{ref.key}: numbers of changed rows of table {name} are invalid")
    reading.payload.steps[one.to] = steps


def _place_blocks(wanted: Layout, target: Array, to: Positions, packed: Array) -> None:
    """Copy packed blocks to positions ``to``; without an index array where they are neighbours."""
    first = int(to[0])
    last = int(to[-1]) + 1
    if last - first == len(to):
        target[wanted.starts[first] : wanted.starts[last]].reshape(packed.shape)[...] = packed
    else:
        wanted.scatter(target, to, packed.reshape(-1))
