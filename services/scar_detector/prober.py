"""The second path: ask a member directly, over connections made for this question.

A connection of its own, because an old one may be broken without either side having noticed. A bare greeting goes first: it
tells a closed port, a stranger and a frozen process apart, each within its time.
"""

from __future__ import annotations

import socket
import time

import grpc

from scar import errors
from scar.placement import Member, Role
from scar.transport import connect
from scar.v1 import member_pb2, member_pb2_grpc
from scar_detector.watched import Answer
from scar_runtime.addresses import is_ours, parted

PROBE_SECONDS = 0.4  # for the whole question
HUNG_SECONDS = 2.5  # a shard's working thread moves at least every 100 ms, or copies for a moment

_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # HTTP/2 preface and empty SETTINGS
_FRAME_BYTES = 9
_SETTINGS = 4  # type of the frame with which every HTTP/2 server begins


def probe(member: Member, seconds: float = PROBE_SECONDS) -> Answer:
    """Ask this member whether it lives, within ``seconds``. Never raises."""
    end = time.monotonic() + seconds
    return _knock(member.address, end) or _ask(member, end)


def _knock(address: str, end: float) -> Answer | None:
    """A bare HTTP/2 greeting, which the kernel alone cannot answer for a frozen process. None: it was answered."""
    host, port = parted(address)
    try:
        with socket.create_connection((host, int(port)), timeout=_left(end)) as connection:
            connection.sendall(_HELLO)
            connection.settimeout(_left(end))
            frame = connection.recv(_FRAME_BYTES, socket.MSG_WAITALL)
    except ConnectionRefusedError:
        return Answer.REFUSED if is_ours(host) else Answer.REJECTED
    except (OSError, ValueError):
        return Answer.SILENT
    if len(frame) < _FRAME_BYTES:
        return Answer.SILENT
    return None if frame[3] == _SETTINGS else Answer.STRANGER


def _ask(member: Member, end: float) -> Answer:
    channel = connect(member.address)
    request = member_pb2.ProbeRequest(incarnation=member.incarnation)
    try:
        reply = member_pb2_grpc.MemberServiceStub(channel).Probe(request, timeout=_left(end), wait_for_ready=True)
    except grpc.RpcError as error:
        return _failed(error)
    finally:
        channel.close()
    return _judge(member, reply)


def _left(end: float) -> float:
    return max(0.001, end - time.monotonic())


def _failed(error: grpc.RpcError) -> Answer:
    """A server without this method is no member of ours: the port belongs to somebody else now."""
    if isinstance(error, grpc.Call) and error.code() is grpc.StatusCode.UNIMPLEMENTED:
        return Answer.STRANGER
    return Answer.ALIVE if isinstance(errors.from_rpc(error), errors.Busy) else Answer.SILENT


def _judge(member: Member, reply: member_pb2.ProbeReply) -> Answer:
    if reply.member.incarnation != member.incarnation:
        return Answer.STRANGER
    if member.role is not Role.SHARD:
        return Answer.ALIVE
    if reply.idle > HUNG_SECONDS:
        return Answer.HUNG
    return Answer.LAPSED if reply.lapsed else Answer.ALIVE
