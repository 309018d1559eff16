"""Both ends of a live move: frozen blocks go from their owner to the shard that will have them in the next epoch.

For each table four kinds of parts travel: "values", "slot:<name>", "steps", and "saved" (what the running checkpoint holds of
the blocks, so that their distances stay honest at the new owner). After them comes, one by one, each "push" that waits for its
clock: its worker sends it again, but may die before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import grpc
import numpy as np

from scar import codec, errors
from scar.blocks import Array, Ids
from scar.codec import Chunk
from scar.errors import Internal
from scar.placement import Member
from scar.tables import Job, Table
from scar.transport import Link
from scar.v1 import ps_pb2
from scar_ps.barrier import Sender
from scar_ps.blockstore import Contents, Part
from scar_ps.holdings import Aside, Pending
from scar_ps.rounds import committed_values

SLOT, PUSH = "slot:", "push"


@dataclass(frozen=True)
class Offer:
    """Frozen blocks, the pushes that wait for those of each part, and what a round has copied and not committed."""

    parts: Sequence[Part]
    pushes: Sequence[Sequence[Pending]]
    uncommitted: Sequence[Part]


def offered(offer: Offer, epoch: int) -> Iterator[Chunk]:
    """The donor's stream. The blocks are frozen, so they are read without a lock."""
    for part, pushes in zip(offer.parts, offer.pushes, strict=True):
        store = part.store
        at = np.arange(len(store)) if part.positions is None else part.positions
        contents = store.copy(at)
        arrays: dict[str, Array] = {"values": contents.values}
        arrays |= {SLOT + name: slot for name, slot in contents.slots.items()}
        arrays |= {"steps": store.steps[at], "saved": committed_values(store, at, offer.uncommitted)}
        for name, array in arrays.items():
            header = ps_pb2.TensorHeader(table=store.table.name, dtype=array.dtype.name, epoch=epoch, part=name)
            header.block_ids = codec.ids_to_bytes(store.ids[at])
            yield from codec.chunks(header, array)
        for push in pushes:
            header = ps_pb2.TensorHeader(table=store.table.name, dtype=push.values.dtype.name, epoch=epoch, part=PUSH)
            header.worker, header.incarnation = push.sender.name, push.sender.incarnation
            header.push_id, header.clock, header.block_ids = push.push_id, push.clock, codec.ids_to_bytes(push.ids)
            yield from codec.chunks(header, push.values)


def fetch(donor: Member, request: ps_pb2.FetchRequest, job: Job, timeout: float) -> list[Aside]:
    """Copy frozen blocks from their owner. Raises what the donor says, :class:`Internal` for a stream that does not fit."""
    link = Link(donor.address, donor.key)
    call = link.channel.unary_stream(
        "/scar.v1.ShardData/Fetch",
        request_serializer=ps_pb2.FetchRequest.SerializeToString,
        response_deserializer=codec.decode_chunk,
    )
    try:
        return received(call(request, timeout=timeout), job, donor.key, request.epoch)
    except grpc.RpcError as error:
        raise errors.from_rpc(error, link.target) from error
    finally:
        link.close()


def received(chunks: Iterable[Chunk], job: Job, donor: str, epoch: int) -> list[Aside]:
    """Read a donor's stream."""
    tables: dict[str, _Received] = {}
    raw, at = np.empty(0, np.uint8), 0
    for chunk in chunks:
        header = chunk.header
        if header is not None:
            if at < len(raw):
                raise Internal(f"{donor} sent {at} of {len(raw)} bytes of a table")
            table = job.table(header.table)
            ids = codec.ids_from_bytes(header.block_ids, table.blocks)
            array = _room(table, ids, header, donor)
            tables.setdefault(table.name, _Received(ids)).take(header, ids, array, donor)
            raw, at = array.view(np.uint8), 0
        if at + len(chunk.data) > len(raw):
            raise Internal(f"{donor} sent more data than its headers say")
        raw[at : at + len(chunk.data)] = np.frombuffer(chunk.data, np.uint8)
        at += len(chunk.data)
    if at < len(raw):
        raise Internal(f"{donor} sent {at} of {len(raw)} bytes of a table")
    return [
        Aside(epoch, donor, name, table.ids, _contents(job.table(name), table.arrays, donor), table.pushes)
        for name, table in tables.items()
    ]


@dataclass
class _Received:
    """One table of a donor's stream."""

    ids: Ids
    arrays: dict[str, Array] = field(default_factory=dict)
    pushes: list[Pending] = field(default_factory=list)

    def take(self, header: ps_pb2.TensorHeader, ids: Ids, array: Array, donor: str) -> None:
        """A part begins; its array is filled later."""
        if header.part == PUSH and np.isin(ids, self.ids).all():
            sender = Sender(header.worker, header.incarnation)
            self.pushes.append(Pending(sender, header.push_id, header.clock, ids, array))
        elif header.part != PUSH and np.array_equal(ids, self.ids):
            self.arrays[header.part] = array
        else:
            raise Internal(f"{donor} sent part {header.part!r} of table {header.table} for other blocks than before")


def _room(table: Table, ids: Ids, header: ps_pb2.TensorHeader, donor: str) -> Array:
    """An array for one part; its size follows from the ids, not from what the header claims."""
    steps = header.part == "steps"
    count = len(ids) if steps else int(table.layout.sizes[ids].sum())
    array: Array = np.empty(count, np.int64 if steps else table.dtype)
    if header.bytes != array.nbytes or header.dtype != array.dtype.name:
        raise Internal(f"{donor} sent part {header.part!r} of table {table.name} in a wrong size or dtype")
    return array


def _contents(table: Table, arrays: Mapping[str, Array], donor: str) -> Contents:
    expected = {"values", "steps", "saved", *(SLOT + name for name in table.rule.slots)}
    if set(arrays) != expected:
        raise Internal(f"{donor} sent {sorted(arrays)} of table {table.name}, not {sorted(expected)}")
    slots = {name: arrays[SLOT + name] for name in table.rule.slots}
    return Contents(arrays["values"], slots, arrays["steps"].astype(np.int64, copy=False), arrays["saved"])
