"""Objects of the running checkpoint: many blocks of one moment in one immutable file, each part readable
and checkable alone.

    state = BlockState("w", ids, clock, watermark, owner)
    encoded = EncodedObject(job, [(state, BlockPayload(values, slots, steps))])
    store.put_pieces(object_key(epoch, owner, round_number), encoded.pieces())

``object_reader.py`` reads them.

Layout: magic ``SCARBLK2``, uint32 length of the JSON, JSON, per group uint32 ids of its blocks and SHA-256 of
its segments; then per group the records of its blocks, back to back (``block_records.py``). A group of rows
that have changed has uint32 counts of them behind the ids, and the JSON says in which object the others are.
All numbers are little-endian. The SHA-256 of all before the records is in the manifest, so that each byte
that is read is vouched for by the manifest, and only what is read has to be checked.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scar.blocks import Array, BlockState, Positions
from scar.errors import Internal, ShapeMismatch
from scar.parallel import each_part
from scar.tables import Job, Table
from scar_runtime.checkpoint.block_records import (
    DIGEST_BYTES,
    RecordFormat,
    Sizes,
    block_format,
    changed_format,
    pack_records,
    segment_bounds,
    segment_digests,
)
from scar_runtime.checkpoint.manifest import ObjectRef, Sha256
from scar_runtime.store import Buffer

MAGIC = b"SCARBLK2"
OLDER_MAGIC = b"SCARBLK1"
FORMAT = 3
WHOLE_FORMAT = 2  # of an object without changed rows, which versions before that can read
MAX_JSON_BYTES = 16 << 20
# records with one digest, which are read together; a block that is larger has a digest of its own
SEGMENT_BYTES = 64 << 10  # a digest of less costs more calls than bytes, and other threads wait for each
PIECE_BYTES = 8 << 20  # records encoded at once

PREFIX_BYTES = len(MAGIC) + 4
ID_BYTES = 4  # of one block in the index
COUNT_BYTES = 4  # of its changed rows
ENTRY_BYTES = ID_BYTES + COUNT_BYTES + DIGEST_BYTES  # the most that one block takes there


@dataclass(frozen=True, eq=False)
class ChangedRows:
    """Which rows of their blocks a payload has: ``counts`` of each block, and the number of each row in its
    block, ascending. All others are as in ``baseline``, which has the whole blocks; None: as in x(0).
    """

    counts: NDArray[np.int64]
    rows: NDArray[np.integer[Any]]
    baseline: ObjectRef | None


@dataclass(eq=False)
class BlockPayload:
    """State of some blocks, packed one after the other: values, slots (same dtype and length), and one
    int64 step per block. ``changed``: values and slots are of these rows alone.
    """

    values: Array
    slots: dict[str, Array]
    steps: NDArray[np.int64]
    changed: ChangedRows | None = None


class EncodedObject:
    """An object of groups, in which a block may occur once, made as it is written.

    ``bytes``, ``header_bytes``: how large it is, and its header. ``digest``: of the header, when all pieces
    were made. Raises :class:`ShapeMismatch`.
    """

    def __init__(self, job: Job, groups: Sequence[tuple[BlockState, BlockPayload]]) -> None:
        parts = [
            EncodedGroup(job.table(group.table), group, payload)
            for group, payload in groups
            if len(group.ids)
        ]
        described = [part.describe() for part in parts]
        form = FORMAT if any(part.changed for part in parts) else WHOLE_FORMAT
        about = {"format": form, "job": job.name, "segment": SEGMENT_BYTES, "groups": described}
        text = json.dumps(about, separators=(",", ":")).encode()
        self._prefix = b"".join([MAGIC, struct.pack("<I", len(text)), text])
        self._parts = parts
        self.header_bytes = len(self._prefix) + sum(part.index_bytes for part in parts)
        self.bytes = self.header_bytes + sum(part.bytes for part in parts)
        self.digest: Sha256 = b""

    def pieces(self) -> Iterator[tuple[int, Buffer]]:
        """What :meth:`Store.put_pieces` takes: the header comes last, as it has the digests of all records.
        Copies each payload once.
        """
        at = self.header_bytes
        head = [self._prefix]
        for part in self._parts:
            head += part.index()
            for raw, digests in part.encode():
                yield at, raw
                at += len(raw)
                head += digests
        header = b"".join(head)
        self.digest = hashlib.sha256(header).digest()
        yield 0, header


@dataclass(frozen=True, eq=False)
class ObjectSection:
    """A group as it lies in an object.

    ``start``: byte offset of its first record; ``segment_bytes``: of records that share a digest;
    ``digests``: back to back. ``table``: None where nobody reads the records. ``counts``: rows of each block
    that are in its record, where these are the changed ones; the others are in ``baseline`` (None: x(0)).
    """

    group: BlockState
    start: int = 0
    segment_bytes: int = SEGMENT_BYTES
    digests: bytes = b""
    table: Table | None = None
    counts: NDArray[np.int64] | None = None
    baseline: ObjectRef | None = None

    @cached_property
    def form(self) -> RecordFormat:
        """Of its records."""
        assert self.table is not None
        return block_format(self.table) if self.counts is None else changed_format(self.table)

    @cached_property
    def sizes(self) -> Sizes:
        """Elements of the values in each record."""
        assert self.table is not None
        if self.counts is not None:
            return self.counts * self.table.row_elements
        return self.table.layout.sizes[self.group.ids]

    @cached_property
    def record_starts(self) -> Positions:
        """See :meth:`RecordFormat.record_starts`; counted from :attr:`start`."""
        return self.form.record_starts(self.sizes)

    @cached_property
    def segment_bounds(self) -> Positions:
        """See :func:`segment_bounds`."""
        return segment_bounds(self.record_starts, self.segment_bytes)


@dataclass(frozen=True, eq=False)
class ObjectHeader:
    """What an object contains, without the values. ``baseline_headers``: those that were read, by key."""

    sections: tuple[ObjectSection, ...]
    baseline_headers: dict[str, ObjectHeader] = field(default_factory=dict, compare=False)

    @property
    def groups(self) -> list[BlockState]:
        return [section.group for section in self.sections]

    @cached_property
    def blocks(self) -> int:
        return sum(len(section.group.ids) for section in self.sections)

    @property
    def has_changes(self) -> bool:
        """Of some blocks it has changed rows alone."""
        return any(one.counts is not None for one in self.sections)

    @cached_property
    def baselines(self) -> frozenset[str]:
        """Keys of the objects without which not all of this one can be read."""
        return frozenset(one.baseline.key for one in self.sections if one.baseline is not None)


def object_ref(
    key: str, encoded: EncodedObject, groups: Sequence[BlockState], owner: str, epoch: int, round_number: int
) -> ObjectRef:
    """How a manifest lists an object that was written."""
    if not encoded.digest:
        raise Internal(f"{key} was not written yet")
    return ObjectRef(
        key=key,
        bytes=encoded.bytes,
        header_bytes=encoded.header_bytes,
        digest=encoded.digest,
        owner=owner,
        epoch=epoch,
        round=round_number,
        blocks=sum(len(group.ids) for group in groups),
        clock=min((group.clock for group in groups), default=0),
    )


class EncodedGroup:
    """The records of one group. ``bytes``, ``index_bytes``: of the records, and of what the header says of
    them.
    """

    def __init__(self, table: Table, group: BlockState, payload: BlockPayload) -> None:
        self.group = group
        self.changed = payload.changed
        self._table = table
        self._arrays = [payload.values, *(payload.slots[name] for name in table.slots)]
        self._steps = payload.steps
        if self.changed is None:
            self._form = block_format(table)
            self._sizes = table.layout.take(group.ids.astype(np.int64)).sizes
        else:
            self._form = changed_format(table)
            self._sizes = self.changed.counts * table.row_elements
            self._arrays.append(self.changed.rows.astype(self._form.word).view(table.dtype))
        columns = self._form.array_sizes(self._sizes)
        self._ends = np.cumsum(np.vstack([np.zeros(len(self._arrays), np.int64), columns]), axis=0)
        self._ensure_fits()
        self._starts = self._form.record_starts(self._sizes)
        self._bounds = segment_bounds(self._starts, SEGMENT_BYTES)
        self.bytes = int(self._starts[-1])
        entry = ID_BYTES if self.changed is None else ID_BYTES + COUNT_BYTES
        self.index_bytes = entry * len(group.ids) + DIGEST_BYTES * (len(self._bounds) - 1)

    def _ensure_fits(self) -> None:
        if (
            any(array.dtype != self._table.dtype for array in self._arrays)
            or len(self._sizes) != len(self.group.ids)
            or [array.shape for array in self._arrays] != [(end,) for end in self._ends[-1]]
            or self._steps.shape != self.group.ids.shape
        ):
            raise ShapeMismatch(
                f"table {self._table.name}: a payload of {len(self.group.ids)} blocks must have"
                f" {int(self._sizes.sum())} {self._table.dtype} elements"
            )

    def describe(self) -> dict[str, Any]:
        """As the header has it."""
        about = {
            "table": self.group.table,
            "dtype": self._table.dtype.name,
            "slots": list(self._table.slots),
            "blocks": len(self.group.ids),
            "clock": self.group.clock,
            "watermark": dict(self.group.watermark),
            "owner": self.group.owner,
        }
        if self.changed is not None:
            about["baseline"] = describe_baseline(self.changed.baseline)
        return about

    def index(self) -> list[bytes]:
        """What the header has before the digests."""
        ids = self.group.ids.astype("<u4", copy=False).tobytes()
        return [ids] if self.changed is None else [ids, self.changed.counts.astype("<u4").tobytes()]

    def encode(self) -> Iterator[tuple[memoryview, list[bytes]]]:
        """Records in pieces so small that temporaries of ragged blocks stay small, with the digests of their
        segments.
        """
        begins = self._starts[self._bounds]
        cuts = self._bounds[np.searchsorted(begins, np.arange(PIECE_BYTES, self.bytes, PIECE_BYTES))]
        return each_part(self._encode_piece, cut_range(cuts, len(self.group.ids)))  # most of it is SHA-256

    def _encode_piece(self, piece: tuple[int, int]) -> tuple[memoryview, list[bytes]]:
        first, last = piece
        spans = map(slice, self._ends[first].tolist(), self._ends[last].tolist())
        cut = [array[span] for array, span in zip(self._arrays, spans, strict=True)]
        raw = pack_records(self._form, self._sizes[first:last], cut, self._steps[first:last])
        low, high = np.searchsorted(self._bounds, [first, last])
        edges = self._starts[self._bounds[low : high + 1]] - self._starts[first]
        return raw, segment_digests(raw, edges[:-1], edges[1:])


def describe_baseline(ref: ObjectRef | None) -> dict[str, Any]:
    """All that is needed to read it; empty: x(0)."""
    if ref is None:
        return {}
    about = {"key": ref.key, "bytes": ref.bytes, "header_bytes": ref.header_bytes}
    return {**about, "digest": ref.digest.hex()}


def parse_baseline(about: dict[str, Any]) -> ObjectRef | None:
    """Raises :class:`ValueError`, :class:`KeyError`, :class:`TypeError`."""
    if not about:
        return None
    return ObjectRef(
        key=str(about["key"]),
        bytes=int(about["bytes"]),
        header_bytes=int(about["header_bytes"]),
        digest=bytes.fromhex(about["digest"]),
    )


def cut_range(cuts: Positions, count: int) -> list[tuple[int, int]]:
    """``range(count)`` cut before each of ``cuts``: (first, last) of each part that is not empty."""
    bounds = np.unique(np.concatenate([[0], cuts, [count]])).tolist()
    return list(pairwise(bounds))
