"""Shipments on the wire: a stream of tensors, for each piece "values", "slot:<name>"s and "steps"."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from scar import codec
from scar.blocks import Array, Ids
from scar.codec import Chunk
from scar.errors import InvalidRequest, ShapeMismatch
from scar.tables import Job, Table
from scar.v1 import ps_pb2
from scar_ps.blockstore import Contents
from scar_ps.moves import SLOT
from scar_ps.replicas import Shipment
from scar_ps.rounds import Copied

VALUES, STEPS = "values", "steps"


def encoded(shipment: Shipment) -> Iterator[bytes]:
    """The stream in wire form."""
    about: ps_pb2.Shipment | None = _described(shipment)
    for piece in shipment.pieces:
        contents = piece.contents
        arrays = {VALUES: contents.values, **{SLOT + name: slot for name, slot in contents.slots.items()}}
        if contents.steps is not None:
            arrays[STEPS] = contents.steps
        for part, array in arrays.items():
            header = ps_pb2.TensorHeader(table=piece.table, dtype=array.dtype.name, part=part, shipment=about)
            header.block_ids = codec.ids_to_bytes(piece.ids)
            if part == VALUES:
                header.base.update(piece.watermark)
            about = None
            yield from map(codec.encode_chunk, codec.chunks(header, array))


def _described(shipment: Shipment) -> ps_pb2.Shipment:
    return ps_pb2.Shipment(
        owner=shipment.owner,
        epoch=shipment.epoch,
        number=shipment.number,
        since=shipment.since,
        clock=shipment.clock,
        watermark=dict(shipment.watermark),
    )


class _Piece:
    """One piece while it arrives."""

    def __init__(self, table: Table, header: ps_pb2.TensorHeader) -> None:
        self.table, self.ids = table, codec.ids_from_bytes(header.block_ids, table.blocks)
        self.base = dict(header.base)
        self.arrays: dict[str, Array] = {}

    def room(self, header: ps_pb2.TensorHeader) -> Array:
        """An array for one part; its size follows from the ids, not from what the header claims."""
        steps = header.part == STEPS
        count = len(self.ids) if steps else int(self.table.layout.sizes[self.ids].sum())
        array: Array = np.empty(count, np.int64 if steps else self.table.dtype)
        known = {VALUES, STEPS, *(SLOT + name for name in self.table.rule.slots)} - self.arrays.keys()
        if header.part not in known or header.bytes != array.nbytes or header.dtype != array.dtype.name:
            raise ShapeMismatch(f"part {header.part!r} of table {self.table.name} does not fit a shipment")
        self.arrays[header.part] = array
        return array

    def copied(self) -> Copied:
        slots = {name: self.arrays.get(SLOT + name) for name in self.table.rule.slots}
        if VALUES not in self.arrays or STEPS not in self.arrays or any(slot is None for slot in slots.values()):
            raise InvalidRequest(f"a shipment lacks a part of table {self.table.name}")
        whole = {name: slot for name, slot in slots.items() if slot is not None}
        steps = self.arrays[STEPS].astype(np.int64, copy=False)
        return Copied(self.table.name, self.ids, self.base, Contents(self.arrays[VALUES], whole, steps))


def received(chunks: Iterable[Chunk], job: Job) -> Shipment:
    """Read a stream. Raises :class:`ShapeMismatch` or :class:`InvalidRequest` for one that is no whole shipment."""
    about: ps_pb2.Shipment | None = None
    pieces: list[_Piece] = []
    raw, at = np.empty(0, np.uint8), 0
    for chunk in chunks:
        if chunk.header is not None:
            _demand_whole(at, raw)
            about = about or (chunk.header.shipment if chunk.header.HasField("shipment") else None)
            if chunk.header.part == VALUES or not pieces:
                pieces.append(_Piece(job.table(chunk.header.table), chunk.header))
            _demand_same(pieces[-1], chunk.header)
            raw, at = pieces[-1].room(chunk.header).view(np.uint8), 0
        if at + len(chunk.data) > len(raw):
            raise ShapeMismatch("a shipment has more data than its headers say")
        raw[at : at + len(chunk.data)] = np.frombuffer(chunk.data, np.uint8)
        at += len(chunk.data)
    _demand_whole(at, raw)
    if about is None:
        raise InvalidRequest("a shipment says first whose blocks it brings")
    copied = [piece.copied() for piece in pieces]
    return Shipment(about.owner, about.epoch, about.number, about.since, about.clock, dict(about.watermark), copied)


def _demand_whole(at: int, raw: Array) -> None:
    if at < len(raw):
        raise ShapeMismatch(f"a shipment has {at} of {len(raw)} bytes of a part")


def _demand_same(piece: _Piece, header: ps_pb2.TensorHeader) -> None:
    ids: Ids = codec.ids_from_bytes(header.block_ids, piece.table.blocks)
    if header.table != piece.table.name or not np.array_equal(ids, piece.ids):
        raise InvalidRequest(f"part {header.part!r} of table {header.table} belongs to other blocks than its values")
