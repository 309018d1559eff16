"""Both ends of a live migration: frozen blocks go from their owner to their next one.

For each table the parts of :mod:`scar_ps.wire.tensor_parts` travel, and "saved" (what the running checkpoint
holds of the blocks, so that their distances stay honest at the new owner). After them comes, one by one, each
"push" that waits for its clock: its worker sends it again, but may die before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from scar import errors
from scar.block_parts import VALUES, part_dtype, part_layout
from scar.blocks import Array, Ids
from scar.errors import Internal
from scar.placement import Member
from scar.tables import Job, Table
from scar.v1 import ps_pb2
from scar.wire import codec
from scar.wire.codec import Chunk
from scar.wire.row_names import set_rows
from scar.wire.shard_link import ShardLink
from scar.wire.tensor_reader import TensorSink, array_sink, read_tensors
from scar_ps.core.block_arrays import split_runs
from scar_ps.core.block_data import IncomingBlocks, InheritedPush
from scar_ps.core.block_store import StoreSlice
from scar_ps.core.checkpoint_round import committed_values
from scar_ps.core.migrations import FrozenBlocks
from scar_ps.core.requests import Sender
from scar_ps.wire.tensor_parts import (
    allocate_part,
    contents_from_parts,
    part_names,
    parts_of,
    pushed_rows,
)

PUSH = "push"
SAVED = "saved"


def encode_frozen(frozen: FrozenBlocks, epoch: int) -> Iterator[Chunk]:
    """The donor's stream. The blocks are frozen, so they are read without a lock."""
    for part, pushes in zip(frozen.parts, frozen.pushes, strict=True):
        yield from _encode_part(part, frozen, epoch)
        for push in pushes:
            yield from _encode_push(part.store.table, push, epoch)


def _encode_part(part: StoreSlice, frozen: FrozenBlocks, epoch: int) -> Iterator[Chunk]:
    """A piece of it at a time: all of it is more memory than many a shard has left."""
    store = part.store
    table = store.table
    at = part.store_positions
    ids = codec.ids_to_bytes(store.ids[at])
    readers = parts_of(store)
    readers[SAVED] = partial(committed_values, store, committed=frozen.committed)
    for name, read in readers.items():
        layout = part_layout(table, VALUES if name == SAVED else name, store.row_counts)
        dtype = part_dtype(table, name)
        packed = layout.take(at)
        runs = split_runs(packed, codec.CHUNK_BYTES // dtype.itemsize)
        header = ps_pb2.TensorHeader(
            table=table.name, dtype=dtype.name, epoch=epoch, part=name, block_ids=ids
        )
        pieces = (read(at[first:last]) for first, last in runs)
        yield from codec.chunks_of_pieces(header, packed.elements * dtype.itemsize, pieces)


def _encode_push(table: Table, push: InheritedPush, epoch: int) -> Iterator[Chunk]:
    header = ps_pb2.TensorHeader(
        table=table.name,
        dtype=push.values.dtype.name,
        epoch=epoch,
        part=PUSH,
        worker=push.sender.name,
        incarnation=push.sender.incarnation,
        push_id=push.push_id,
        clock=push.clock,
        block_ids=codec.ids_to_bytes(push.ids),
    )
    set_rows(header, push.rows)
    yield from codec.chunks(header, push.values)


def fetch_frozen(
    donor: Member, request: ps_pb2.FetchRequest, job: Job, timeout: float
) -> list[IncomingBlocks]:
    """Copy frozen blocks from their owner.

    Raises what the donor says, :class:`Internal` for a stream that does not fit.
    """
    link = ShardLink(donor.address, donor.key)
    try:
        return decode_frozen(link.fetch(request, timeout), job, donor.key, request.epoch)
    finally:
        link.close()


def decode_frozen(chunks: Iterable[Chunk], job: Job, donor: str, epoch: int) -> list[IncomingBlocks]:
    """Read a donor's stream."""
    tables: dict[str, _ReceivedTable] = {}

    def open_part(header: ps_pb2.TensorHeader) -> TensorSink:
        table = job.table(header.table)
        ids = codec.ids_from_bytes(header.block_ids, table.blocks)
        try:
            array = allocate_part(table, ids, header)
        except errors.ShapeMismatch as error:
            raise Internal(f"{donor} sent blocks that do not fit: {error.message}") from error
        tables.setdefault(table.name, _ReceivedTable(table, ids)).add_part(header, ids, array, donor)
        return array_sink(f"table {table.name}", array)

    read_tensors(chunks, open_part, lambda what: Internal(f"{donor} sent {what}"))
    return [table.to_incoming(donor, epoch) for table in tables.values()]


@dataclass
class _ReceivedTable:
    """One table of a donor's stream."""

    table: Table
    ids: Ids
    parts: dict[str, Array] = field(default_factory=dict)
    pushes: list[InheritedPush] = field(default_factory=list)

    def add_part(self, header: ps_pb2.TensorHeader, ids: Ids, array: Array, donor: str) -> None:
        """A part begins; its array is filled later."""
        if header.part == PUSH and np.isin(ids, self.ids).all():
            sender = Sender(header.worker, header.incarnation)
            rows = pushed_rows(self.table, ids, header)
            self.pushes.append(InheritedPush(sender, header.push_id, header.clock, ids, array, rows))
        elif header.part != PUSH and np.array_equal(ids, self.ids):
            self.parts[header.part] = array
        else:
            raise Internal(
                f"{donor} sent part {header.part!r} of table {header.table} for other blocks than before"
            )

    def to_incoming(self, donor: str, epoch: int) -> IncomingBlocks:
        name = self.table.name
        expected = part_names(self.table) | {SAVED}
        if set(self.parts) != expected:
            raise Internal(f"{donor} sent {sorted(self.parts)} of table {name}, not {sorted(expected)}")
        contents = contents_from_parts(self.parts)
        contents.saved = self.parts[SAVED]
        return IncomingBlocks(epoch, donor, name, self.ids, contents, self.pushes)
