"""Objects of the running checkpoint: many blocks of one moment in one immutable file, each part readable
and checkable alone.

    state = BlockState("w", ids, clock, watermark, owner)
    encoded = encode_object(job, [(state, BlockPayload(values, slots, steps))])
    store.put(object_key(epoch, owner, round_number), encoded.parts)

``object_reader.py`` reads them.

Layout: magic ``SCARBLK2``, uint32 length of the JSON, JSON, per group uint32 ids of its blocks and SHA-256 of
its segments; then per group the records of its blocks, back to back (``block_records.py``). All numbers are
little-endian. The SHA-256 of all before the records is in the manifest, so that each byte that is read is
vouched for by the manifest, and only what is read has to be checked.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scar.blocks import Array, BlockState, Ids, Positions
from scar.errors import ShapeMismatch
from scar.parallel import map_parts
from scar.tables import Job, Table
from scar_runtime.checkpoint.block_records import (
    DIGEST_BYTES,
    array_sizes,
    pack_records,
    record_starts,
    segment_bounds,
    segment_digests,
)
from scar_runtime.checkpoint.manifest import ObjectRef, Sha256

MAGIC = b"SCARBLK2"
OLDER_MAGIC = b"SCARBLK1"
FORMAT = 2
MAX_JSON_BYTES = 16 << 20
# records with one digest, which are read together; a block that is larger has a digest of its own
SEGMENT_BYTES = 16 << 10
PIECE_BYTES = 8 << 20  # records encoded at once

PREFIX_BYTES = len(MAGIC) + 4
ID_BYTES = 4  # of one block in the index
ENTRY_BYTES = ID_BYTES + DIGEST_BYTES  # the most that one block takes there


@dataclass(eq=False)
class BlockPayload:
    """State of some blocks, packed one after the other: values, slots (same dtype and length), and one
    int64 step per block.
    """

    values: Array
    slots: dict[str, Array]
    steps: NDArray[np.int64]


@dataclass(frozen=True)
class EncodedObject:
    """``parts`` are what :meth:`Store.put` takes; both sizes in bytes; ``digest``: of the header."""

    parts: list[bytes | memoryview]
    bytes: int
    header_bytes: int
    digest: Sha256


@dataclass(frozen=True, eq=False)
class ObjectSection:
    """A group as it lies in an object.

    ``start``: byte offset of its first record; ``segment_bytes``: of records that share a digest;
    ``digests``: back to back. ``table``: None where nobody reads the records.
    """

    group: BlockState
    start: int = 0
    segment_bytes: int = SEGMENT_BYTES
    digests: bytes = b""
    table: Table | None = None

    @cached_property
    def record_starts(self) -> Positions:
        """See :func:`record_starts`; counted from :attr:`start`."""
        assert self.table is not None
        return record_starts(self.table, self.table.layout.sizes[self.group.ids])

    @cached_property
    def segment_bounds(self) -> Positions:
        """See :func:`segment_bounds`."""
        return segment_bounds(self.record_starts, self.segment_bytes)


@dataclass(frozen=True, eq=False)
class ObjectHeader:
    """What an object contains, without the values."""

    sections: tuple[ObjectSection, ...]

    @property
    def groups(self) -> list[BlockState]:
        return [section.group for section in self.sections]

    @cached_property
    def blocks(self) -> int:
        return sum(len(section.group.ids) for section in self.sections)


def object_ref(
    key: str, encoded: EncodedObject, groups: Sequence[BlockState], owner: str, epoch: int, round_number: int
) -> ObjectRef:
    """How a manifest lists an object."""
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


def encode_object(job: Job, groups: Sequence[tuple[BlockState, BlockPayload]]) -> EncodedObject:
    """The object's bytes; a block may occur once. Copies each payload once. Raises :class:`ShapeMismatch`."""
    described: list[dict[str, Any]] = []
    index: list[bytes] = []
    records: list[memoryview] = []
    for group, payload in groups:
        if len(group.ids) == 0:
            continue
        pieces, digests = _encode_group(job.table(group.table), group.ids, payload)
        records += pieces
        index += [group.ids.astype("<u4", copy=False).tobytes(), *digests]
        described.append(_describe_group(job.table(group.table), group))
    about = {"format": FORMAT, "job": job.name, "segment": SEGMENT_BYTES, "groups": described}
    text = json.dumps(about, separators=(",", ":")).encode()
    head = b"".join([MAGIC, struct.pack("<I", len(text)), text, *index])
    size = len(head) + sum(len(piece) for piece in records)
    return EncodedObject([head, *records], size, len(head), hashlib.sha256(head).digest())


def _describe_group(table: Table, group: BlockState) -> dict[str, Any]:
    return {
        "table": group.table,
        "dtype": table.dtype.name,
        "slots": list(table.slots),
        "blocks": len(group.ids),
        "clock": group.clock,
        "watermark": dict(group.watermark),
        "owner": group.owner,
    }


def _encode_group(table: Table, ids: Ids, payload: BlockPayload) -> tuple[list[memoryview], list[bytes]]:
    """Digests of the segments; records in pieces so small that temporaries of ragged blocks stay small."""
    layout = table.layout.take(ids.astype(np.int64))
    arrays = [payload.values, *(payload.slots[name] for name in table.slots)]
    ends = np.cumsum(np.vstack([np.zeros(len(arrays), np.int64), array_sizes(table, layout.sizes)]), axis=0)
    if (
        any(array.dtype != table.dtype for array in arrays)
        or [array.shape for array in arrays] != [(end,) for end in ends[-1]]
        or payload.steps.shape != ids.shape
    ):
        raise ShapeMismatch(
            f"table {table.name}: a payload of {len(ids)} blocks must have {layout.elements} {table.dtype}"
            " elements"
        )
    starts = record_starts(table, layout.sizes)
    bounds = segment_bounds(starts, SEGMENT_BYTES)
    cuts = bounds[np.searchsorted(starts[bounds], np.arange(PIECE_BYTES, starts[-1], PIECE_BYTES))]

    def encode_piece(piece: tuple[int, int]) -> tuple[memoryview, list[bytes]]:
        first, last = piece
        spans = map(slice, ends[first].tolist(), ends[last].tolist())
        cut = [array[span] for array, span in zip(arrays, spans, strict=True)]
        raw = pack_records(table, layout.sizes[first:last], cut, payload.steps[first:last])
        edges = starts[bounds[(bounds >= first) & (bounds <= last)]] - starts[first]
        return raw, segment_digests(raw, edges[:-1], edges[1:])

    encoded = map_parts(encode_piece, cut_range(cuts, len(ids)))  # most of it is SHA-256
    return [raw for raw, _ in encoded], [digest for _, digests in encoded for digest in digests]


def cut_range(cuts: Positions, count: int) -> list[tuple[int, int]]:
    """``range(count)`` cut before each of ``cuts``: (first, last) of each part that is not empty."""
    bounds = np.unique(np.concatenate([[0], cuts, [count]])).tolist()
    return list(pairwise(bounds))
