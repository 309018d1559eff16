"""Epochs on the wire and in the store: blocks in few bits each, whose they are and which of them moved.

Owners are dealt at random, so nothing shorter than the bits of their numbers says them; a bit for each block
says which moved, where that is shorter than their ids.
"""

from __future__ import annotations

import numpy as np

from scar.blocks import Ids
from scar.errors import BlockOutOfRange, InvalidRequest
from scar.placement import NOBODY, BlockGroup, BlockSource, Epoch, Owners
from scar.tables import MAX_BLOCKS
from scar.v1 import types_pb2
from scar.wire.codec import ids_from_bytes, ids_to_bytes, member_from_proto, member_to_proto

MOST_COUNTED = (1 << 63) - 1  # clocks and pushes: they are kept in arrays of int64
MOST_PLANES = 16  # bits of a shard's index


def epoch_to_proto(epoch: Epoch) -> types_pb2.Epoch:
    return types_pb2.Epoch(
        number=epoch.number,
        author=epoch.author,
        job=epoch.job,
        shards=[member_to_proto(member) for member in epoch.shards],
        workers=[member_to_proto(member) for member in epoch.workers],
        owners=[owners_to_proto(table, owners) for table, owners in epoch.owners.items()],
        moved=[_group_to_proto(group) for group in epoch.moved],
        fenced=epoch.fenced,
        rollback=epoch.rollback,
        manifest=epoch.manifest,
        clock=epoch.clock,
        cause=epoch.cause,
        failure=epoch.failure,
        seats=epoch.seats,
        restart=epoch.restart,
        finished=epoch.finished,
        restoring=epoch.restoring,
        resave=epoch.resave,
        awaits_workers=epoch.awaits_workers,
    )


def epoch_from_proto(message: types_pb2.Epoch) -> Epoch:
    return Epoch(
        number=message.number,
        author=message.author,
        job=message.job,
        shards=tuple(member_from_proto(member) for member in message.shards),
        workers=tuple(member_from_proto(member) for member in message.workers),
        owners={one.table: owners_from_proto(one) for one in message.owners},
        moved=tuple(_group_from_proto(group) for group in message.moved),
        fenced=tuple(message.fenced),
        rollback=message.rollback,
        manifest=message.manifest,
        clock=message.clock,
        cause=message.cause,
        failure=message.failure,
        seats=tuple(message.seats),
        restart=message.restart,
        finished=message.finished,
        restoring=tuple(message.restoring),
        resave=message.resave,
        awaits_workers=message.awaits_workers,
    )


def _group_to_proto(group: BlockGroup) -> types_pb2.BlockGroup:
    message = types_pb2.BlockGroup(
        table=group.table,
        former_owner=group.former_owner,
        source=types_pb2.Source.ValueType(int(group.source)),
        object_key=group.object_key,
        clock=group.clock,
        watermark=dict(group.watermark),
        sender=group.sender,
    )
    set_moved(message, group.ids)
    return message


def _group_from_proto(message: types_pb2.BlockGroup) -> BlockGroup:
    if max((message.clock, *message.watermark.values())) > MOST_COUNTED:
        raise InvalidRequest(f"moved blocks of table {message.table!r} are of a clock or push beyond 2^63")
    return BlockGroup(
        table=message.table,
        ids=read_moved(message),
        former_owner=message.former_owner,
        source=_source_from_proto(message),
        object_key=message.object_key,
        clock=message.clock,
        watermark=dict(message.watermark),
        sender=message.sender,
    )


def _source_from_proto(message: types_pb2.BlockGroup) -> BlockSource:
    try:
        return BlockSource(message.source)
    except ValueError as error:
        raise InvalidRequest(f"moved blocks of table {message.table!r} have no known source") from error


# --- blocks
# ------------------------------------------------------------------------------------------------------------


def owners_to_proto(table: str, owners: Owners) -> types_pb2.TableOwners:
    """Bit k of all owners is one plane. Nobody has all bits, and no shard: so there are enough of them."""
    indices = owners[owners != NOBODY]
    highest = int(indices.max()) + 1 if len(indices) else 0
    planes = [np.packbits((owners & (1 << k)).astype(bool)) for k in range(max(1, highest.bit_length()))]
    return types_pb2.TableOwners(
        table=table, blocks=len(owners), planes=[plane.tobytes() for plane in planes]
    )


def owners_from_proto(message: types_pb2.TableOwners) -> Owners:
    """Raises :class:`InvalidRequest`."""
    if not message.planes:
        return _owners_of_protocol_5(message)
    size = -(-message.blocks // 8)
    if message.blocks > MAX_BLOCKS or len(message.planes) > MOST_PLANES:
        raise InvalidRequest(f"owners of table {message.table!r} are too many")
    if any(len(plane) != size for plane in message.planes):
        raise InvalidRequest(f"owners of table {message.table!r} are not {message.blocks}")
    owners: Owners = np.zeros(message.blocks, np.uint16)
    for k, plane in enumerate(message.planes):
        bits = np.unpackbits(np.frombuffer(plane, np.uint8), count=message.blocks)
        owners |= bits.astype(np.uint16) << np.uint16(k)
    owners[owners == (1 << len(message.planes)) - 1] = NOBODY
    return owners


def _owners_of_protocol_5(message: types_pb2.TableOwners) -> Owners:
    """As jobs have them that were begun then."""
    if len(message.owners) % 2:
        raise InvalidRequest(
            f"owners of table {message.table!r} have {len(message.owners)} bytes, not a multiple of 2"
        )
    return np.frombuffer(message.owners, dtype="<u2")


def set_moved(message: types_pb2.BlockGroup, ids: Ids) -> None:
    """These (ascending) blocks, whichever way is shorter."""
    if not len(ids):
        return
    base = int(ids[0]) & ~7
    bits = int(ids[-1]) - base + 1
    if bits >= 32 * len(ids):
        message.block_ids = ids_to_bytes(ids)
        return
    present = np.zeros(bits, bool)
    present[ids - np.uint32(base)] = True
    message.base = base
    message.bitmap = np.packbits(present).tobytes()


def read_moved(message: types_pb2.BlockGroup) -> Ids:
    """Ascending. Raises :class:`InvalidRequest` and :class:`BlockOutOfRange`."""
    if not message.bitmap:
        return ids_from_bytes(message.block_ids)
    if message.block_ids:
        raise InvalidRequest(f"moved blocks of table {message.table!r} are named twice")
    if message.base + 8 * len(message.bitmap) > MAX_BLOCKS + 8:
        raise BlockOutOfRange(f"moved blocks of table {message.table!r} are beyond {MAX_BLOCKS}")
    present = np.unpackbits(np.frombuffer(message.bitmap, np.uint8))
    ids: Ids = (np.flatnonzero(present) + message.base).astype(np.uint32)
    if len(ids) and int(ids[-1]) >= MAX_BLOCKS:
        raise BlockOutOfRange(f"block {int(ids[-1])} of table {message.table!r} is beyond {MAX_BLOCKS}")
    return ids
