"""Objects of the running checkpoint: many blocks of one moment in one immutable file, each readable and checkable alone.

    encoded = encode_object(job, [(Group("w", ids, clock, watermark, owner), Payload(values, slots, steps))])
    store.put(object_key(epoch, owner, round_number), encoded.parts)
    header = read_header(store, ref, job)
    payload = read_blocks(store, ref, header, job, "w", ids)

Layout: magic ``SCARBLK1``, uint32 length of the JSON, JSON, per group uint32 ids and uint32 CRCs of its blocks, uint32 CRC of
all before; then per group the records of its blocks, back to back (``blockrecords.py``). All numbers are little-endian.

What is read here comes from outside: every size is compared with what the job's tables allow before anything is allocated.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scar.blocks import Array, Ids, Layout, Positions, positions_of
from scar.errors import CorruptCheckpoint, ShapeMismatch, StoreError, WrongJob
from scar.tables import Job, Table
from scar.v1.ps_pb2 import ObjectRef
from scar_runtime.blockrecords import Checksums, checksums, pack, record_sizes, unpack
from scar_runtime.store import Store

MAGIC = b"SCARBLK1"
FORMAT = 1
MAX_JSON_BYTES = 16 << 20
PIECE_BYTES = 8 << 20  # records encoded, or read by one range request, at once
GAP_BYTES = 1 << 20  # unwanted bytes that are cheaper to read than another request, which costs about 2 ms on either side
THREADS = 8

_PREFIX = len(MAGIC) + 4
_ENTRY = 8  # bytes of one block in the index: id and CRC


@dataclass(frozen=True, eq=False)
class Group:
    """Blocks of one table that one shard copied at one moment. ``ids`` ascend; ``watermark``: worker key -> last push id
    contained; ``owner``: member key of the shard that wrote the values."""

    table: str
    ids: Ids
    clock: int
    watermark: Mapping[str, int]
    owner: str


@dataclass(eq=False)
class Payload:
    """State of some blocks, packed one after the other: values, slots (same dtype and length), and one int64 step per block."""

    values: Array
    slots: dict[str, Array]
    steps: NDArray[np.int64]


@dataclass(frozen=True)
class EncodedObject:
    """``parts`` are what :meth:`Store.put` takes; both sizes in bytes."""

    parts: list[bytes | memoryview]
    bytes: int
    header_bytes: int


@dataclass(frozen=True, eq=False)
class Section:
    """A group as it lies in an object: ``start`` is the byte offset of its first record; one CRC per block."""

    group: Group
    start: int
    crc: Checksums


@dataclass(frozen=True, eq=False)
class ObjectHeader:
    """What an object contains, without the values."""

    sections: tuple[Section, ...]

    @property
    def groups(self) -> list[Group]:
        return [section.group for section in self.sections]

    @cached_property
    def blocks(self) -> int:
        return sum(len(section.group.ids) for section in self.sections)


def object_key(epoch: int, owner: str, round_number: int) -> str:
    """Key of what one shard (member key) saves in one round, below the job's prefix."""
    return f"objects/e{epoch:08d}-{owner}-r{round_number:08d}"


def object_ref(
    key: str, encoded: EncodedObject, groups: Sequence[Group], owner: str, epoch: int, round_number: int
) -> ObjectRef:
    """How a manifest lists an object."""
    return ObjectRef(
        key=key,
        bytes=encoded.bytes,
        header_bytes=encoded.header_bytes,
        owner=owner,
        epoch=epoch,
        round=round_number,
        blocks=sum(len(group.ids) for group in groups),
        clock=min((group.clock for group in groups), default=0),
    )


# --- writing ---------------------------------------------------------------------------------------------------------


def encode_object(job: Job, groups: Sequence[tuple[Group, Payload]]) -> EncodedObject:
    """The object's bytes; a block may occur once. Copies each payload once. Raises :class:`ShapeMismatch`."""
    described: list[dict[str, Any]] = []
    index: list[bytes] = []
    records: list[memoryview] = []
    for group, payload in groups:
        if len(group.ids) == 0:
            continue
        pieces, crc = _encode_group(job.table(group.table), group.ids, payload)
        records += pieces
        index += [group.ids.astype("<u4", copy=False).tobytes(), crc.astype("<u4", copy=False).tobytes()]
        described.append(_describe(job.table(group.table), group))
    text = json.dumps({"format": FORMAT, "job": job.name, "groups": described}, separators=(",", ":")).encode()
    head = b"".join([MAGIC, struct.pack("<I", len(text)), text, *index])
    head += struct.pack("<I", zlib.crc32(head))
    return EncodedObject([head, *records], len(head) + sum(len(piece) for piece in records), len(head))


def _describe(table: Table, group: Group) -> dict[str, Any]:
    return {
        "table": group.table,
        "dtype": table.dtype.name,
        "slots": list(table.rule.slots),
        "blocks": len(group.ids),
        "clock": group.clock,
        "watermark": dict(group.watermark),
        "owner": group.owner,
    }


def _encode_group(table: Table, ids: Ids, payload: Payload) -> tuple[list[memoryview], Checksums]:
    """Records and their CRCs, in pieces small enough that temporaries of ragged blocks stay small."""
    layout = table.layout.take(ids.astype(np.int64))
    arrays = [payload.values, *(payload.slots[name] for name in table.rule.slots)]
    if (
        any(array.dtype != table.dtype or array.shape != (layout.elements,) for array in arrays)
        or payload.steps.shape != ids.shape
    ):
        raise ShapeMismatch(
            f"table {table.name}: a payload of {len(ids)} blocks must have {layout.elements} {table.dtype} elements"
        )
    sizes = record_sizes(table, layout.sizes)
    starts = np.append(0, np.cumsum(sizes))
    cuts = np.searchsorted(starts, np.arange(PIECE_BYTES, starts[-1], PIECE_BYTES))
    pieces, crc = [], np.empty(len(ids), dtype=np.uint32)
    for first, last in _runs(cuts, len(ids)):
        span = slice(int(layout.starts[first]), int(layout.starts[last]))
        raw = pack(table, layout.sizes[first:last], [array[span] for array in arrays], payload.steps[first:last])
        crc[first:last] = checksums(raw, starts[first:last] - starts[first], sizes[first:last])
        pieces.append(raw)
    return pieces, crc


def _runs(cuts: Positions, count: int) -> list[tuple[int, int]]:
    """``range(count)`` cut before each of ``cuts``: (first, last) of each part that is not empty."""
    bounds = np.unique(np.concatenate([[0], cuts, [count]])).tolist()
    return list(pairwise(bounds))


# --- reading the header ----------------------------------------------------------------------------------------------


def read_header(store: Store, ref: ObjectRef, job: Job) -> ObjectHeader:
    """Header and index by one range request.

    Raises :class:`CorruptCheckpoint`, :class:`WrongJob`, :class:`scar.errors.ObjectNotFound`, and
    :class:`StoreError` for a newer format.
    """
    if not _PREFIX + 4 <= ref.header_bytes <= min(ref.bytes, _PREFIX + MAX_JSON_BYTES + _ENTRY * job.blocks + 4):
        raise CorruptCheckpoint(f"{ref.key}: a header of {ref.header_bytes} bytes in an object of {ref.bytes} cannot be")
    raw = store.get_range(ref.key, 0, ref.header_bytes)
    if len(raw) < ref.header_bytes:
        raise CorruptCheckpoint(f"{ref.key} is cut off: {len(raw)} of {ref.header_bytes} header bytes are there")
    if raw[: len(MAGIC)] != MAGIC:
        raise CorruptCheckpoint(f"{ref.key} does not begin like a checkpoint object")
    if struct.unpack_from("<I", raw, len(raw) - 4)[0] != zlib.crc32(memoryview(raw)[:-4]):
        raise CorruptCheckpoint(f"{ref.key}: the header's checksum does not fit")
    text_bytes = struct.unpack_from("<I", raw, len(MAGIC))[0]
    try:
        text = json.loads(raw[_PREFIX : _PREFIX + text_bytes])
        if text["format"] > FORMAT:
            raise StoreError(f"{ref.key} was written by a newer SCAR", "Upgrade this service to the version that wrote it")
        return _header(ref, job, text, memoryview(raw)[_PREFIX + text_bytes : -4])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptCheckpoint(f"{ref.key}: the header cannot be read: {error}") from error


def _header(ref: ObjectRef, job: Job, text: dict[str, Any], index: memoryview) -> ObjectHeader:
    if text["job"] != job.name:
        raise WrongJob(f"{ref.key} belongs to job {text['job']!r}, not to {job.name!r}")
    start, at, sections = ref.header_bytes, 0, []
    for entry in text["groups"]:
        table = _table(ref, job, entry)
        end = at + _ENTRY * int(entry["blocks"])
        if not at < end <= len(index):
            raise CorruptCheckpoint(f"{ref.key}: the index does not fit the header")
        ids, crc = np.frombuffer(index[at:end], dtype="<u4").reshape(2, -1)
        if int(ids.max()) >= table.blocks or not (ids[1:] > ids[:-1]).all():
            raise CorruptCheckpoint(f"{ref.key}: block ids of table {table.name} are not possible")
        watermark = {str(worker): int(push) for worker, push in entry["watermark"].items()}
        group = Group(table.name, ids, int(entry["clock"]), watermark, str(entry["owner"]))
        sections.append(Section(group, start, crc))
        at, start = end, start + int(record_sizes(table, table.layout.sizes[ids]).sum())
    if at != len(index) or start != ref.bytes:
        raise CorruptCheckpoint(f"{ref.key} should have {start} bytes by its header, the manifest says {ref.bytes}")
    return ObjectHeader(tuple(sections))


def _table(ref: ObjectRef, job: Job, entry: dict[str, Any]) -> Table:
    """The job's table behind a group, if it is still the table that was saved."""
    table = next((table for table in job.tables if table.name == entry["table"]), None)
    if table is None or table.dtype.name != entry["dtype"] or list(table.rule.slots) != entry["slots"]:
        raise WrongJob(f"{ref.key}: table {entry['table']!r} ({entry['dtype']}, slots {entry['slots']}) is not this job's")
    return table


# --- reading blocks --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Range:
    """One request: records ``first`` to ``last`` of a section; ``rows`` of these go to positions ``to`` of the result."""

    section: Section
    start: int
    length: int
    first: int
    last: int
    rows: Positions
    to: Positions


def read_blocks(store: Store, ref: ObjectRef, header: ObjectHeader, job: Job, table: str, ids: Ids) -> Payload:
    """State of these blocks (ascending ids), each checked by its CRC. Neighbours are read together, ranges in parallel.

    Raises :class:`CorruptCheckpoint` with object, table and block, or :class:`scar.errors.ObjectNotFound`.
    """
    spec = job.table(table)
    ranges, missing = _plan(spec, header, ids)
    if missing.any():
        raise CorruptCheckpoint(f"{ref.key} does not contain block {int(ids[missing][0])} of table {table}")
    wanted = spec.layout.take(ids.astype(np.int64))
    payload = Payload(
        np.empty(wanted.elements, dtype=spec.dtype),
        {name: np.empty(wanted.elements, dtype=spec.dtype) for name in spec.rule.slots},
        np.empty(len(ids), dtype=np.int64),
    )
    if len(ranges) > 1:
        with ThreadPoolExecutor(min(THREADS, len(ranges))) as pool:
            for _ in pool.map(lambda one: _read(store, ref, spec, one, wanted, payload), ranges):
                pass
    elif ranges:
        _read(store, ref, spec, ranges[0], wanted, payload)
    return payload


def verify_object(store: Store, ref: ObjectRef, job: Job) -> ObjectHeader:
    """Read all of it. Raises what :func:`read_header` and :func:`read_blocks` raise."""
    header = read_header(store, ref, job)
    for section in header.sections:
        read_blocks(store, ref, ObjectHeader((section,)), job, section.group.table, section.group.ids)
    return header


def _plan(table: Table, header: ObjectHeader, ids: Ids) -> tuple[list[_Range], NDArray[np.bool_]]:
    """Ranges to read, and a mask of the ids that no section holds."""
    ranges: list[_Range] = []
    missing = np.ones(len(ids), dtype=np.bool_)
    for section in header.sections:
        if section.group.table != table.name:
            continue
        at = positions_of(section.group.ids, ids)
        to = np.flatnonzero((at >= 0) & missing)
        missing[to] = False
        if len(to):
            ranges += _ranges(table, section, at[to], to)
    return ranges, missing


def _ranges(table: Table, section: Section, rows: Positions, to: Positions) -> list[_Range]:
    """Requests for these records (ascending positions in the section): split at wide gaps, and every :data:`PIECE_BYTES`."""
    sizes = record_sizes(table, table.layout.sizes[section.group.ids])
    starts = section.start + np.append(0, np.cumsum(sizes))
    begin, end = starts[rows], starts[rows + 1]
    far = np.append(True, begin[1:] - end[:-1] > GAP_BYTES)
    piece = (begin - begin[np.flatnonzero(far)][np.cumsum(far) - 1]) // PIECE_BYTES
    cuts = np.flatnonzero(far | (np.diff(piece, prepend=0) != 0))
    found = []
    for low, high in _runs(cuts, len(rows)):
        first, last, start = int(rows[low]), int(rows[high - 1]) + 1, int(begin[low])
        found.append(_Range(section, start, int(end[high - 1]) - start, first, last, rows[low:high] - first, to[low:high]))
    return found


def _read(store: Store, ref: ObjectRef, table: Table, one: _Range, wanted: Layout, payload: Payload) -> None:
    group = one.section.group
    raw = store.get_range(ref.key, one.start, one.length)
    if len(raw) < one.length:
        raise CorruptCheckpoint(f"{ref.key} is cut off at byte {one.start + len(raw)} of {ref.bytes}")
    sizes = table.layout.sizes[group.ids[one.first : one.last]]
    records = record_sizes(table, sizes)
    starts = np.cumsum(records) - records
    wrong = checksums(raw, starts[one.rows], records[one.rows]) != one.section.crc[one.first : one.last][one.rows]
    if wrong.any():
        block = int(group.ids[one.first + one.rows[wrong][0]])
        raise CorruptCheckpoint(f"{ref.key}: block {block} of table {table.name} is damaged: its checksum does not fit")
    arrays, steps = unpack(table, sizes, raw, one.rows)
    for target, array in zip([payload.values, *payload.slots.values()], arrays, strict=True):
        _place(wanted, target, one.to, array)
    payload.steps[one.to] = steps


def _place(wanted: Layout, target: Array, to: Positions, packed: Array) -> None:
    """Copy packed blocks to positions ``to``; without an index array where they are neighbours."""
    first, last = int(to[0]), int(to[-1]) + 1
    if last - first == len(to):
        target[wanted.starts[first] : wanted.starts[last]].reshape(packed.shape)[...] = packed
    else:
        wanted.scatter(target, to, packed.reshape(-1))
