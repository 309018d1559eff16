"""Blocks that a worker sends to their new owner: one table, one state, values and what is kept beside them;
with a checksum over each.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

import numpy as np

from scar.block_parts import VALUES, part_dtype, part_layout, parts_beside
from scar.blocks import Array, Ids
from scar.errors import InvalidRequest, NotServing, ShapeMismatch, UnknownTable
from scar.tables import Table
from scar.v1 import ps_pb2
from scar.wire.codec import Chunk, ids_from_bytes
from scar.wire.tensor_reader import TensorSink, array_sink, read_tensors
from scar_ps.core.events import CopyReceived
from scar_ps.core.requests import Sender, ShardView
from scar_ps.wire.tensor_parts import contents_from_parts


class _ArrivingCopy:
    """The one table of a stream while it arrives, part by part."""

    def __init__(self, view: ShardView) -> None:
        self._view = view
        self.header: ps_pb2.TensorHeader | None = None  # the first
        self.ids: Ids = np.empty(0, np.uint32)
        self.parts: dict[str, Array] = {}
        self._checksums: dict[str, int] = {}
        self._awaited: list[str] = []  # parts that have not come

    def open_part(self, header: ps_pb2.TensorHeader) -> TensorSink:
        """Memory is taken for blocks that wait for their values, and for no others."""
        table = self._find_table(header)
        part = header.part or VALUES
        if self.header is None:
            self.header = header
            self.ids = self._find_awaited(header, table)
            self._awaited = [VALUES, *parts_beside(table)]
        elif not _of_same_blocks(self.header, header):
            raise InvalidRequest("one stream brings blocks of one table")
        if part not in self._awaited:
            raise ShapeMismatch(f"part {part!r} of table {table.name} came twice, or it has none")
        self._awaited.remove(part)
        ids = ids_from_bytes(header.block_ids, table.blocks)
        size = part_layout(table, part).count_elements(ids)
        dtype = part_dtype(table, part)
        if header.dtype != dtype.name or header.bytes != size * dtype.itemsize:
            raise ShapeMismatch(f"{part} of blocks of table {table.name} have another size or dtype")
        if not len(self.ids):  # they have come before
            return TensorSink(f"table {table.name}", header.bytes, lambda _data: None)
        self.parts[part] = np.empty(size, dtype)
        self._checksums[part] = header.crc32
        return array_sink(f"table {table.name}", self.parts[part])

    def _find_table(self, header: ps_pb2.TensorHeader) -> Table:
        if header.epoch > self._view.epoch:
            raise NotServing(f"this shard knows epoch {self._view.epoch}, not yet {header.epoch}")
        store = self._view.tables.get(header.table)
        if store is None:
            raise UnknownTable(f"the job has no table {header.table!r}")
        return store.table

    def _find_awaited(self, header: ps_pb2.TensorHeader, table: Table) -> Ids:
        """The ids of the stream if some of its blocks are awaited, else none."""
        store = self._view.tables[table.name]
        ids = ids_from_bytes(header.block_ids, table.blocks)
        at = store.find_blocks(ids)
        return ids[:0] if (at < 0).any() or not (store.loading[at] > 0).any() else ids

    def find_flaw(self) -> str:
        """What is wrong with what came, in words; empty: nothing."""
        if self._awaited:
            return f"{', '.join(self._awaited)} are missing"
        sums = {part: zlib.crc32(array.data.cast("B")) for part, array in self.parts.items()}
        return "" if sums == self._checksums else "their checksum is wrong"


def _of_same_blocks(first: ps_pb2.TensorHeader, other: ps_pb2.TensorHeader) -> bool:
    told = [(one.table, one.epoch, one.worker, one.incarnation, one.clock) for one in (first, other)]
    return told[0] == told[1] and first.block_ids == other.block_ids


def decode_copy(chunks: Iterable[Chunk], view: ShardView) -> CopyReceived:
    """Read a stream. Raises :class:`ShapeMismatch`, :class:`InvalidRequest`, :class:`UnknownTable`, and
    :class:`NotServing` where this shard has not heard of the epoch yet.
    """
    received = _ArrivingCopy(view)
    read_tensors(chunks, received.open_part, lambda what: ShapeMismatch(f"sent blocks have {what}"))
    header = received.header
    if header is None:
        raise InvalidRequest("a stream of blocks says first which they are")
    return CopyReceived(
        Sender(header.worker, header.incarnation),
        header.epoch,
        header.table,
        received.ids,
        header.clock,
        contents_from_parts(received.parts),
        received.find_flaw(),
    )
