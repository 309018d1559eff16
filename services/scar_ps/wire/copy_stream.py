"""Blocks that a worker sends to their new owner: one table, one state, with a checksum over all."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

import numpy as np

from scar.blocks import Array, Ids
from scar.errors import InvalidRequest, NotServing, ShapeMismatch, UnknownTable
from scar.v1 import ps_pb2
from scar.wire.codec import Chunk, ids_from_bytes
from scar.wire.tensor_reader import TensorSink, array_sink, read_tensors
from scar_ps.core.block_data import BlockContents
from scar_ps.core.events import CopyReceived
from scar_ps.core.requests import Sender, ShardView


class _ArrivingCopy:
    """The one table of a stream while it arrives."""

    def __init__(self, view: ShardView) -> None:
        self._view = view
        self.header: ps_pb2.TensorHeader | None = None
        self.ids: Ids = np.empty(0, np.uint32)
        self.values: Array = np.empty(0)

    def open_table(self, header: ps_pb2.TensorHeader) -> TensorSink:
        """Memory is taken for blocks that wait for their values, and for no others."""
        if self.header is not None:
            raise InvalidRequest("one stream brings blocks of one table")
        if header.epoch > self._view.epoch:
            raise NotServing(f"this shard knows epoch {self._view.epoch}, not yet {header.epoch}")
        store = self._view.tables.get(header.table)
        if store is None:
            raise UnknownTable(f"the job has no table {header.table!r}")
        table = store.table
        ids = ids_from_bytes(header.block_ids, table.blocks)
        size = table.layout.count_elements(ids)
        if header.dtype != table.dtype_name or header.bytes != size * table.dtype.itemsize:
            raise ShapeMismatch(f"blocks of table {table.name} have another size or dtype")
        self.header = header
        at = store.find_blocks(ids)
        if (at < 0).any() or not (store.loading[at] > 0).any():
            return TensorSink(
                f"table {table.name}", header.bytes, lambda _data: None
            )  # they have come before
        self.ids = ids
        self.values = np.empty(size, table.dtype)
        return array_sink(f"table {table.name}", self.values)


def decode_copy(chunks: Iterable[Chunk], view: ShardView) -> CopyReceived:
    """Read a stream. Raises :class:`ShapeMismatch`, :class:`InvalidRequest`, :class:`UnknownTable`, and
    :class:`NotServing` where this shard has not heard of the epoch yet.
    """
    received = _ArrivingCopy(view)
    read_tensors(chunks, received.open_table, lambda what: ShapeMismatch(f"sent blocks have {what}"))
    header = received.header
    if header is None:
        raise InvalidRequest("a stream of blocks says first which they are")
    right = zlib.crc32(received.values.data.cast("B")) == header.crc32 or not len(received.ids)
    return CopyReceived(
        Sender(header.worker, header.incarnation),
        header.epoch,
        header.table,
        received.ids,
        header.clock,
        BlockContents(received.values),
        "" if right else "their checksum is wrong",
    )
