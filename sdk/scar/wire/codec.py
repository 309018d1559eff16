"""Between the wire and the program: protocol messages to dataclasses, tensors to chunks and back.

Tensor payloads never become protobuf objects. A chunk is encoded by writing its few protobuf tag bytes by
hand around the raw bytes, and decoded by reading them, so that the wire is a valid ``TensorChunk`` of
ps.proto and a payload is copied once on each side. Lengths are written with as many (legal) bytes as bring
the payload to a multiple of 8: numpy computes on it where it lies. Everything decoded here comes from the
wire: lengths are checked before anything is allocated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache

import numpy as np
from google.protobuf.message import DecodeError

from scar.blocks import Array, Ids, is_ascending
from scar.errors import BlockOutOfRange, InvalidRequest, TooLarge
from scar.placement import Member, Role
from scar.strategies import StrategyChoice
from scar.tables import MAX_BLOCKS, Job
from scar.v1 import ps_pb2, recovery_pb2, types_pb2
from scar.version import PROTOCOL
from scar.wire.checkpoint_messages import policy_from_proto, policy_to_proto
from scar.wire.table_messages import MAX_MESSAGE_BYTES as MAX_MESSAGE_BYTES
from scar.wire.table_messages import initial_key as initial_key
from scar.wire.table_messages import job_arrays as job_arrays
from scar.wire.table_messages import table_from_proto, table_to_proto
from scar.wire.timing import MOST_LEASE

CHUNK_BYTES = 1 << 20
WHOLE_BYTES = 7 << 20  # of a tensor that may come as one chunk, where that is asked for
MAX_CHUNK_BYTES = 8 << 20

ALIGNMENT = 8  # bytes: the largest element

_HEADER_TAG = 0x0A  # field 1, length-delimited
_DATA_TAG = 0x12  # field 2, length-delimited
_SHARED_TAG = 0x1A  # field 3, length-delimited
_VARINT_BYTES = 5  # the most that parsers take for a tag or a length

Wire = bytes | memoryview
WireParts = tuple[Wire, ...]  # of a message, one after the other


@dataclass(slots=True)
class Chunk:
    """One message of a tensor stream. ``data`` may be any buffer; decoded chunks hold a view of the received
    message.

    ``shared``: where the data is instead (:mod:`scar.wire.shared_memory`). ``lasting``: the data are the
    receiver's, for as long as they are held; else the next chunk may come in their place.
    """

    header: ps_pb2.TensorHeader | None = None
    data: memoryview | bytes = b""
    shared: ps_pb2.SharedRange | None = None
    lasting: bool = False


def encode_chunk(chunk: Chunk) -> bytes:
    """Serializer for gRPC: wire bytes of a ``TensorChunk``."""
    return b"".join(encode_parts(chunk))


def encode_parts(chunk: Chunk) -> WireParts:
    """The same in pieces that follow each other, the data where they are."""
    head = b""
    if chunk.header is not None:
        header = chunk.header.SerializeToString()
        head = bytes([_HEADER_TAG]) + _encode_varint(len(header)) + header
    if chunk.shared is not None:
        shared = chunk.shared.SerializeToString()
        return (head + bytes([_SHARED_TAG]) + _encode_varint(len(shared)) + shared,)
    if not len(chunk.data):
        return (head,)
    return head + aligned_field(_DATA_TAG, len(head), len(chunk.data)), chunk.data


def decode_chunk(wire: Wire, lasting: bool = False) -> Chunk:
    """Deserializer for gRPC. ``lasting``: so is ``wire``. Raises :class:`InvalidRequest` for anything but a
    well-formed chunk of bounded size.
    """
    if len(wire) > MAX_CHUNK_BYTES:
        raise TooLarge(f"a tensor chunk has {len(wire)} bytes, the limit is {MAX_CHUNK_BYTES}")
    view = memoryview(wire)
    at = 0
    chunk = Chunk(lasting=lasting)
    while at < len(wire):
        tag, at = read_varint(wire, at)
        size, at = read_varint(wire, at)
        if tag not in (_HEADER_TAG, _DATA_TAG, _SHARED_TAG) or at + size > len(wire):
            raise InvalidRequest("a tensor chunk is malformed")
        field, at = view[at : at + size], at + size
        if tag == _DATA_TAG:
            chunk.data = field
            continue
        try:
            if tag == _HEADER_TAG:
                chunk.header = ps_pb2.TensorHeader.FromString(bytes(field))
            else:
                chunk.shared = ps_pb2.SharedRange.FromString(bytes(field))
        except DecodeError as error:
            raise InvalidRequest("a tensor header is malformed") from error
    return chunk


def chunks(header: ps_pb2.TensorHeader, payload: Array, unit: int = 1) -> Iterator[Chunk]:
    """The stream of one table: the header with the first data, then the rest. ``payload`` is contiguous.
    ``unit``: bytes that are in one chunk, where they have room in one.
    """
    yield from chunks_of_pieces(header, payload.nbytes, (payload,), unit)


def chunks_of_pieces(
    header: ps_pb2.TensorHeader, size: int, pieces: Iterable[Array], unit: int = 1
) -> Iterator[Chunk]:
    """The same of a payload of ``size`` bytes, of which one piece at a time is asked for."""
    header.bytes = size
    step = CHUNK_BYTES // unit * unit or CHUNK_BYTES
    head: ps_pb2.TensorHeader | None = header
    for piece in pieces:
        view = piece.reshape(-1).data.cast("B") if piece.size else memoryview(b"")
        for start in range(0, len(view), step):
            yield Chunk(head, view[start : start + step])
            head = None
    if head is not None:
        yield Chunk(head)


def _encode_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def aligned_field(tag: int, before: int, size: int) -> bytes:
    """Tag and length of a field of ``size`` bytes, behind ``before`` others, that starts at a multiple of
    :data:`ALIGNMENT`, where numbers of 5 bytes each can do that.
    """
    return _aligned_field(tag, before % ALIGNMENT, size)


@lru_cache(maxsize=1024)  # most messages are like others
def _aligned_field(tag: int, before: int, size: int) -> bytes:
    shortest = 1 + len(_encode_varint(size))
    length = shortest + -(before + shortest) % ALIGNMENT
    length = shortest if length > 2 * _VARINT_BYTES else length
    first = min(_VARINT_BYTES, length - shortest + 1)
    return _pad_varint(bytes([tag]), first) + _pad_varint(_encode_varint(size), length - first)


def _pad_varint(varint: bytes, length: int) -> bytes:
    """The same number with leading zeros."""
    more = length - len(varint)
    return varint if not more else varint[:-1] + bytes([varint[-1] | 0x80]) + b"\x80" * (more - 1) + b"\x00"


def read_varint(wire: Wire, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(wire) and shift < 7 * _VARINT_BYTES:
        byte = wire[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise InvalidRequest("a tensor chunk is cut short")


# --- ids
# ------------------------------------------------------------------------------------------------------------


def ids_to_bytes(ids: Ids) -> bytes:
    return np.ascontiguousarray(ids, dtype="<u4").tobytes()


def ids_from_bytes(raw: bytes, blocks: int = MAX_BLOCKS) -> Ids:
    """Strictly ascending block ids below ``blocks``. Raises :class:`InvalidRequest` otherwise."""
    if len(raw) % 4:
        raise InvalidRequest(f"block ids have {len(raw)} bytes, not a multiple of 4")
    ids = np.frombuffer(raw, dtype="<u4")
    if len(ids) and int(ids[-1]) >= blocks:
        raise BlockOutOfRange(f"block {int(ids[-1])} is out of range, the table has {blocks}")
    if not is_ascending(ids):
        raise InvalidRequest("block ids must be strictly ascending")
    return ids


# --- members
# ----------------------------------------------------------------------------------------------


def member_to_proto(member: Member) -> types_pb2.Member:
    return types_pb2.Member(
        role=types_pb2.Role.ValueType(int(member.role)),
        name=member.name,
        incarnation=member.incarnation,
        address=member.address,
        secret_hash=member.secret_hash,
        lease_seconds=member.lease_seconds,
        named_calls=member.named_calls,
    )


def join_request(member: Member, secret: bytes) -> recovery_pb2.JoinRequest:
    """As a member of this version joins."""
    return recovery_pb2.JoinRequest(member=member_to_proto(member), secret=secret, protocol=PROTOCOL)


def member_from_proto(message: types_pb2.Member) -> Member:
    try:
        role = Role(message.role)
    except ValueError as error:
        raise InvalidRequest(f"member {message.name!r} has no known role") from error
    lease = message.lease_seconds
    if not 0 <= lease <= MOST_LEASE:
        raise InvalidRequest(
            f"member {message.name!r} has a lease of {lease:g} s, and {MOST_LEASE:g} are the most"
        )
    return Member(
        role,
        message.name,
        message.incarnation,
        message.address,
        message.secret_hash,
        lease,
        message.named_calls,
    )


# --- jobs
# ------------------------------------------------------------------------------------------------------------


def job_to_proto(job: Job) -> types_pb2.JobSpec:
    return types_pb2.JobSpec(
        name=job.name,
        seed=job.seed,
        tables=[table_to_proto(table) for table in job.tables],
        consistency=job.consistency,
        staleness=job.staleness,
        shards=job.shards,
        workers=job.workers,
        checkpoint=policy_to_proto(job.checkpoint),
        recovery=job.recovery,
        replicas=job.replicas,
        replica_period=job.replica_period,
        worker_recovery=job.worker_recovery,
        share=job.share,
        sources=job.sources,
        server_mtbf=job.server_mtbf,
        choice=types_pb2.StrategyChoice(**asdict(job.choice)) if job.choice is not None else None,
        replicate=job.replicate,
        pull_slots=job.pull_slots,
    )


def job_from_proto(message: types_pb2.JobSpec) -> Job:
    """Raises :class:`scar.errors.ConfigError` for a description that no user could have declared."""
    return Job(
        name=message.name,
        tables=tuple(table_from_proto(table) for table in message.tables),
        seed=message.seed,
        consistency=message.consistency,
        staleness=message.staleness,
        shards=message.shards,
        workers=message.workers,
        checkpoint=policy_from_proto(message.checkpoint),
        recovery=message.recovery,
        replicas=message.replicas,
        replica_period=message.replica_period or 1,
        worker_recovery=message.worker_recovery or "ignr",
        share=message.share or "takeover",
        sources=message.sources or "checkpoint",
        server_mtbf=message.server_mtbf,
        choice=_choice_from_proto(message.choice) if message.HasField("choice") else None,
        replicate=message.replicate or "all",
        pull_slots=message.pull_slots,
    )


def _choice_from_proto(message: types_pb2.StrategyChoice) -> StrategyChoice:
    return StrategyChoice(message.recovery, message.replicas, message.sources, message.reason)
