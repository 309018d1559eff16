"""The second path: ask a member directly, over a connection made for this question.

A connection of its own, because a request that waits in an old connection to a frozen process would be answered when it wakes,
and would renew its lease long after its death was reported. Here nothing is sent before the other side has shown life.
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

PROBE_SECONDS = 0.4  # for the whole question
HUNG_SECONDS = 1.0  # a shard's working thread moves at least every 100 ms


def probe(member: Member, seconds: float = PROBE_SECONDS) -> Answer:
    """Ask this member whether it lives, within ``seconds``. Never raises."""
    end = time.monotonic() + seconds
    knocked = _knock(member.address, seconds)
    return knocked or _ask(member, end)


def _knock(address: str, seconds: float) -> Answer | None:
    """A plain TCP connection. None: somebody listens."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=seconds).close()
    except ConnectionRefusedError:
        return Answer.REFUSED
    except (OSError, ValueError):
        return Answer.SILENT
    return None


def _ask(member: Member, end: float) -> Answer:
    channel = connect(member.address)
    try:
        try:
            grpc.channel_ready_future(channel).result(timeout=max(0.0, end - time.monotonic()))
        except grpc.FutureTimeoutError:
            return Answer.SILENT
        request = member_pb2.ProbeRequest(incarnation=member.incarnation)
        try:
            reply = member_pb2_grpc.MemberServiceStub(channel).Probe(request, timeout=max(0.001, end - time.monotonic()))
        except grpc.RpcError as error:
            return _failed(error)
        return _judge(member, reply)
    finally:
        channel.close()


def _failed(error: grpc.RpcError) -> Answer:
    """A server without this method is no member of ours: the port belongs to somebody else now."""
    if isinstance(error, grpc.Call) and error.code() is grpc.StatusCode.UNIMPLEMENTED:
        return Answer.STRANGER
    return Answer.ALIVE if isinstance(errors.from_rpc(error), errors.Busy) else Answer.LATE


def _judge(member: Member, reply: member_pb2.ProbeReply) -> Answer:
    if reply.member.incarnation != member.incarnation:
        return Answer.STRANGER
    return Answer.HUNG if member.role is Role.SHARD and reply.idle > HUNG_SECONDS else Answer.ALIVE
