"""Reading objects of the running checkpoint: headers, and blocks by range requests, each checked by its
digest.

    header = read_header(store, ref, job)
    payload = read_blocks(store, ref, header, job, "w", ids)

What is read here comes from outside: every size is compared with what the job's tables allow before anything
is allocated.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from operator import ne
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scar.blocks import Array, BlockState, Ids, Layout, Positions, is_ascending, positions_of
from scar.errors import CorruptCheckpoint, StoreError, WrongJob
from scar.tables import Job, Table
from scar_runtime.checkpoint.block_records import (
    DIGEST_BYTES,
    record_starts,
    segment_bounds,
    segment_digests,
    unpack_records,
)
from scar_runtime.checkpoint.manifest import ObjectRef
from scar_runtime.checkpoint.objects import (
    ENTRY_BYTES,
    FORMAT,
    ID_BYTES,
    MAGIC,
    MAX_JSON_BYTES,
    OLDER_MAGIC,
    PREFIX_BYTES,
    BlockPayload,
    ObjectHeader,
    ObjectSection,
    cut_range,
)
from scar_runtime.store import Store
from scar_runtime.store.records import OLDER_FORMAT

# unwanted bytes that are cheaper to read than another request, which costs about 2 ms on either side
GAP_BYTES = 1 << 20
READ_BYTES = 12 << 20  # of one request, about: the records of a load of a shard fit in one
THREADS = 8


def read_header(store: Store, ref: ObjectRef, job: Job) -> ObjectHeader:
    """Header and index by one range request.

    Raises :class:`CorruptCheckpoint`, :class:`WrongJob`, :class:`scar.errors.ObjectNotFound`, and
    :class:`StoreError` for a newer format.
    """
    raw = _read_header_bytes(store, ref, job)
    text_end = PREFIX_BYTES + int(struct.unpack_from("<I", raw, len(MAGIC))[0])
    try:
        text = json.loads(raw[PREFIX_BYTES:text_end])
        if text["format"] > FORMAT:
            raise StoreError(
                f"{ref.key} was written by a newer SCAR", "Upgrade this service to the version that wrote it"
            )
        return _parse_header(ref, job, text, memoryview(raw)[text_end:])
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise CorruptCheckpoint(f"{ref.key}: the header cannot be read: {error}") from error


def _read_header_bytes(store: Store, ref: ObjectRef, job: Job) -> bytes:
    """As many as the manifest says, if they are possible, all there, and fit the manifest's digest."""
    most = min(ref.bytes, PREFIX_BYTES + MAX_JSON_BYTES + ENTRY_BYTES * job.blocks)
    if not PREFIX_BYTES <= ref.header_bytes <= most:
        raise CorruptCheckpoint(
            f"{ref.key}: a header of {ref.header_bytes} bytes in an object of {ref.bytes} is invalid"
        )
    raw = store.get_range(ref.key, 0, ref.header_bytes)
    if len(raw) < ref.header_bytes:
        raise CorruptCheckpoint(
            f"{ref.key} is cut off: {len(raw)} of {ref.header_bytes} header bytes are there"
        )
    if raw[: len(MAGIC)] == OLDER_MAGIC:
        raise CorruptCheckpoint(f"{ref.key} is of format 1, without digests", OLDER_FORMAT)
    if raw[: len(MAGIC)] != MAGIC:
        raise CorruptCheckpoint(f"{ref.key} does not begin like a checkpoint object")
    if hashlib.sha256(raw).digest() != ref.digest:
        raise CorruptCheckpoint(f"{ref.key}: the header's digest does not fit")
    return raw


def _parse_header(ref: ObjectRef, job: Job, text: dict[str, Any], index: memoryview) -> ObjectHeader:
    if text["job"] != job.name:
        raise WrongJob(f"{ref.key} belongs to job {text['job']!r}, not to {job.name!r}")
    segment = int(text["segment"])
    if segment <= 0:
        raise CorruptCheckpoint(f"{ref.key}: segments of {segment} bytes are invalid")
    start = ref.header_bytes
    at = 0
    sections = []
    for entry in text["groups"]:
        table = _saved_table(ref, job, entry)
        ids = _parse_ids(ref, table, index[at:], int(entry["blocks"]))
        starts = record_starts(table, table.layout.sizes[ids])
        digests = at + ID_BYTES * len(ids)
        at = digests + DIGEST_BYTES * (len(segment_bounds(starts, segment)) - 1)
        watermark = {str(worker): int(push) for worker, push in entry["watermark"].items()}
        group = BlockState(table.name, ids, int(entry["clock"]), watermark, str(entry["owner"]))
        sections.append(ObjectSection(group, start, segment, bytes(index[digests:at]), table))
        start += int(starts[-1])
    if at != len(index) or start != ref.bytes:
        raise CorruptCheckpoint(
            f"{ref.key} should have {start} bytes by its header, the manifest says {ref.bytes}"
        )
    return ObjectHeader(tuple(sections))


def _parse_ids(ref: ObjectRef, table: Table, index: memoryview, count: int) -> Ids:
    """The ids with which this rest of the index begins."""
    if not 0 < ID_BYTES * count <= len(index):
        raise CorruptCheckpoint(f"{ref.key}: the index does not fit the header")
    ids = np.frombuffer(index[: ID_BYTES * count], dtype="<u4")
    if int(ids.max()) >= table.blocks or not is_ascending(ids):
        raise CorruptCheckpoint(f"{ref.key}: block ids of table {table.name} are invalid")
    return ids


def _saved_table(ref: ObjectRef, job: Job, entry: dict[str, Any]) -> Table:
    """The job's table behind a group, if it is still the table that was saved."""
    table = next((table for table in job.tables if table.name == entry["table"]), None)
    if table is None or table.dtype.name != entry["dtype"] or list(table.slots) != entry["slots"]:
        raise WrongJob(
            f"{ref.key}: table {entry['table']!r} ({entry['dtype']}, slots {entry['slots']}) is not this"
            " job's"
        )
    return table


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
    """State of these blocks (ascending ids), checked by segments. Neighbours are read together, ranges in
    parallel.

    Raises :class:`CorruptCheckpoint` with object, table and block, or :class:`scar.errors.ObjectNotFound`.
    """
    spec = job.table(table)
    ranges, missing = _plan_ranges(header, table, ids)
    if missing.any():
        raise CorruptCheckpoint(f"{ref.key} does not contain block {int(ids[missing][0])} of table {table}")
    at = ids.astype(np.int64)
    wanted = [layout.take(at) for layout in (spec.layout, *map(spec.slot_layout, spec.slots))]
    arrays = [np.empty(layout.elements, dtype=spec.dtype) for layout in wanted]
    slots = dict(zip(spec.slots, arrays[1:], strict=True))
    payload = BlockPayload(arrays[0], slots, np.empty(len(ids), dtype=np.int64))
    if len(ranges) > 1:
        with ThreadPoolExecutor(min(THREADS, len(ranges))) as pool:
            for _ in pool.map(lambda one: _read_range(store, ref, spec, one, wanted, payload), ranges):
                pass
    elif ranges:
        _read_range(store, ref, spec, ranges[0], wanted, payload)
    return payload


def verify_object(store: Store, ref: ObjectRef, job: Job) -> ObjectHeader:
    """Read all of it. Raises what :func:`read_header` and :func:`read_blocks` raise."""
    header = read_header(store, ref, job)
    for section in header.sections:
        read_blocks(store, ref, ObjectHeader((section,)), job, section.group.table, section.group.ids)
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


def damaged_blocks(store: Store, ref: ObjectRef, header: ObjectHeader, table: str, ids: Ids) -> Ids:
    """Which of these blocks (ascending ids) it does not hold, or not as they were written. Every range is
    read once.

    Raises :class:`scar.errors.ObjectNotFound`.
    """
    ranges, damaged = _plan_ranges(header, table, ids)
    for one in ranges:
        _, wrong = _read_checked(store, ref, one)
        damaged[one.to[wrong]] = True
    return ids[damaged]


def _read_checked(store: Store, ref: ObjectRef, one: _Range) -> tuple[bytes, NDArray[np.bool_]]:
    """The bytes of a range, and which of its rows are in a segment that is not as it was written."""
    raw = store.get_range(ref.key, one.start, one.length)
    first = np.flatnonzero(np.diff(one.segments, prepend=-1))
    found = segment_digests(raw, one.begin[first], one.end[first])
    at = DIGEST_BYTES * one.segments[first]
    expected = map(one.section.digests.__getitem__, map(slice, at.tolist(), (at + DIGEST_BYTES).tolist()))
    wrong = np.array([*map(ne, found, expected)], dtype=np.bool_)
    return raw, np.repeat(wrong, np.diff(first, append=len(one.segments)))


def _read_range(
    store: Store, ref: ObjectRef, table: Table, one: _Range, wanted: Sequence[Layout], payload: BlockPayload
) -> None:
    group = one.section.group
    raw, wrong = _read_checked(store, ref, one)
    if len(raw) < one.length:
        raise CorruptCheckpoint(f"{ref.key} is cut off at byte {one.start + len(raw)} of {ref.bytes}")
    if wrong.any():
        block = int(group.ids[one.first + one.rows[wrong][0]])
        raise CorruptCheckpoint(
            f"{ref.key}: block {block} of table {table.name} is damaged: its digest does not fit"
        )
    arrays, steps = unpack_records(table, table.layout.sizes[group.ids[one.first : one.last]], raw, one.rows)
    for layout, target, array in zip(wanted, [payload.values, *payload.slots.values()], arrays, strict=True):
        _place_blocks(layout, target, one.to, array)
    payload.steps[one.to] = steps


def _place_blocks(wanted: Layout, target: Array, to: Positions, packed: Array) -> None:
    """Copy packed blocks to positions ``to``; without an index array where they are neighbours."""
    first = int(to[0])
    last = int(to[-1]) + 1
    if last - first == len(to):
        target[wanted.starts[first] : wanted.starts[last]].reshape(packed.shape)[...] = packed
    else:
        wanted.scatter(target, to, packed.reshape(-1))
