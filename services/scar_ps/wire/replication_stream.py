"""Replication batches on the wire: for each copy of a batch the parts of :mod:`scar_ps.wire.tensor_parts`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from scar.block_parts import VALUES
from scar.blocks import Array, BlockState
from scar.errors import InvalidRequest, ShapeMismatch
from scar.tables import Job, Table
from scar.v1 import ps_pb2
from scar.wire import codec
from scar.wire.codec import Chunk
from scar.wire.tensor_reader import TensorSink, array_sink, read_tensors
from scar_ps.core.block_data import CopiedBlocks
from scar_ps.core.replica_store import ReplicationBatch
from scar_ps.wire.tensor_parts import allocate_part, contents_from_parts, contents_parts, part_names


def encode_batch(batch: ReplicationBatch) -> Iterator[Chunk]:
    """The stream."""
    about: ps_pb2.Shipment | None = _encode_header(batch)
    contents = [contents_parts(copy.contents) for copy in batch.copies]
    for copy, parts in zip(batch.copies, contents, strict=True):
        ids = codec.ids_to_bytes(copy.state.ids)
        for part, array in parts.items():
            header = ps_pb2.TensorHeader(
                table=copy.state.table,
                dtype=array.dtype.name,
                part=part,
                shipment=about,
                block_ids=ids,
                tensors=sum(map(len, contents)),
            )
            if part == VALUES:
                header.base.update(copy.state.watermark)
            about = None
            yield from codec.chunks(header, array)


def _encode_header(batch: ReplicationBatch) -> ps_pb2.Shipment:
    return ps_pb2.Shipment(
        owner=batch.owner,
        epoch=batch.epoch,
        number=batch.number,
        since=batch.since,
        clock=batch.clock,
        watermark=dict(batch.watermark),
        dropped=[
            ps_pb2.TableBlocks(table=table, block_ids=codec.ids_to_bytes(ids))
            for table, ids in batch.dropped.items()
        ],
    )


class _ReceivedCopy:
    """One copy while it arrives."""

    def __init__(self, table: Table, header: ps_pb2.TensorHeader) -> None:
        self.table = table
        self.ids = codec.ids_from_bytes(header.block_ids, table.blocks)
        self._watermark = dict(header.base)
        self._parts: dict[str, Array] = {}

    def open_part(self, header: ps_pb2.TensorHeader) -> TensorSink:
        """Raises for a part of other blocks, or of another size than these have."""
        name = self.table.name
        ids = codec.ids_from_bytes(header.block_ids, self.table.blocks)
        if header.table != name or not np.array_equal(ids, self.ids):
            raise InvalidRequest(
                f"part {header.part!r} of table {header.table} belongs to other blocks than its values"
            )
        if header.part not in part_names(self.table) - self._parts.keys():
            raise ShapeMismatch(f"part {header.part!r} of table {name} does not fit a replication batch")
        array = allocate_part(self.table, self.ids, header)
        self._parts[header.part] = array
        return array_sink(f"part {header.part!r} of table {name}", array)

    def to_copy(self) -> CopiedBlocks:
        if self._parts.keys() != part_names(self.table):
            raise InvalidRequest(f"a replication batch lacks a part of table {self.table.name}")
        state = BlockState(self.table.name, self.ids, watermark=self._watermark)
        return CopiedBlocks(state, contents_from_parts(self._parts))


def decode_batch(chunks: Iterable[Chunk], job: Job) -> ReplicationBatch:
    """Read a stream. Raises :class:`ShapeMismatch` or :class:`InvalidRequest` when it is no whole batch, or
    :class:`scar.errors.UnknownTable`.
    """
    about: ps_pb2.Shipment | None = None
    copies: list[_ReceivedCopy] = []

    def open_part(header: ps_pb2.TensorHeader) -> TensorSink:
        nonlocal about
        if about is None and header.HasField("shipment"):
            about = header.shipment
        if header.part == VALUES or not copies:
            copies.append(_ReceivedCopy(job.table(header.table), header))
        return copies[-1].open_part(header)

    read_tensors(chunks, open_part, lambda what: ShapeMismatch(f"a replication batch has {what}"))
    if about is None:
        raise InvalidRequest("a replication batch says first whose blocks it brings")
    return ReplicationBatch(
        about.owner,
        about.epoch,
        about.number,
        about.since,
        about.clock,
        dict(about.watermark),
        [copy.to_copy() for copy in copies],
        dropped={
            one.table: codec.ids_from_bytes(one.block_ids, job.table(one.table).blocks)
            for one in about.dropped
        },
    )
