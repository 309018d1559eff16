"""Reading headers of objects of the running checkpoint.

What is read here comes from outside: every size is compared with what the job's tables allow before anything
is allocated.
"""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scar.blocks import BlockState, Ids, is_ascending
from scar.errors import CorruptCheckpoint, StoreError, WrongJob
from scar.tables import Job, Table
from scar_runtime.checkpoint.block_records import DIGEST_BYTES
from scar_runtime.checkpoint.manifest import ObjectRef
from scar_runtime.checkpoint.objects import (
    COUNT_BYTES,
    ENTRY_BYTES,
    FORMAT,
    ID_BYTES,
    MAGIC,
    MAX_JSON_BYTES,
    OLDER_MAGIC,
    PREFIX_BYTES,
    ObjectHeader,
    ObjectSection,
    parse_baseline,
)
from scar_runtime.store import Store
from scar_runtime.store.records import OLDER_FORMAT


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
        at += ID_BYTES * len(ids)
        watermark = {str(worker): int(push) for worker, push in entry["watermark"].items()}
        group = BlockState(table.name, ids, int(entry["clock"]), watermark, str(entry["owner"]))
        section = ObjectSection(group, start, segment, table=table)
        if "baseline" in entry:
            counts = _parse_counts(ref, table, index[at:], ids)
            at += COUNT_BYTES * len(ids)
            section = replace(section, counts=counts, baseline=parse_baseline(entry["baseline"]))
        digests = at + DIGEST_BYTES * (len(section.segment_bounds) - 1)
        sections.append(replace(section, digests=bytes(index[at:digests])))
        at = digests
        start += int(section.record_starts[-1])
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


def _parse_counts(ref: ObjectRef, table: Table, index: memoryview, ids: Ids) -> NDArray[np.int64]:
    """How many rows of each of these blocks have changed."""
    if COUNT_BYTES * len(ids) > len(index):
        raise CorruptCheckpoint(f"{ref.key}: the index does not fit the header")
    counts = np.frombuffer(index[: COUNT_BYTES * len(ids)], dtype="<u4").astype(np.int64)
    if (counts > table.row_counts.sizes[ids]).any():
        raise CorruptCheckpoint(f"{ref.key}: counts of changed rows of table {table.name} are invalid")
    return counts


def _saved_table(ref: ObjectRef, job: Job, entry: dict[str, Any]) -> Table:
    """The job's table behind a group, if it is still the table that was saved."""
    table = next((table for table in job.tables if table.name == entry["table"]), None)
    if table is None or table.dtype.name != entry["dtype"] or list(table.slots) != entry["slots"]:
        raise WrongJob(
            f"{ref.key}: table {entry['table']!r} ({entry['dtype']}, slots {entry['slots']}) is not this"
            " job's"
        )
    return table
