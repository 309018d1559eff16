"""The second path: ask a member directly, over connections made for this question.

A connection of its own, because an old one may be broken without either side having noticed. A bare greeting
goes first: it tells a closed port, a foreign server and a frozen process apart, each within its time.
"""

from __future__ import annotations

import socket
import ssl
import time

import grpc

from scar import errors
from scar.errors import ConfigError
from scar.placement import Member, Role
from scar.v1 import member_pb2, member_pb2_grpc
from scar.wire.certificates import CertificateSource
from scar.wire.credentials import active_certificate
from scar.wire.timing import TIMING
from scar.wire.transport import open_channel
from scar_detector.core.member_state import ProbeAnswer
from scar_runtime.process.addresses import is_ours, split_address

PROBE_SECONDS = TIMING.probe_timeout  # for the whole question
HUNG_SECONDS = TIMING.hung

# HTTP/2 preface and empty SETTINGS
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_FRAME_BYTES = 9
_SETTINGS = 4  # type of the frame with which every HTTP/2 server begins
_CUT_OFF = (ConnectionResetError, ConnectionAbortedError, BrokenPipeError, ssl.SSLEOFError)


def probe_member(member: Member, seconds: float = PROBE_SECONDS) -> ProbeAnswer:
    """Ask this member whether it lives, within ``seconds``. Never raises."""
    end = time.monotonic() + seconds
    return _greet_server(member, end) or _ask_member(member, end)


def _greet_server(member: Member, end: float) -> ProbeAnswer | None:
    """A bare HTTP/2 greeting, which the kernel alone cannot answer for a frozen process. None: it was
    answered.

    One that is cut off is sent once more at once: a process that dies at this moment resets what it had
    taken, and the next connection tells that its port is closed.
    """
    host, port = split_address(member.address)
    try:
        try:
            frame = _read_greeting(member, host, int(port), end)
        except _CUT_OFF:
            frame = _read_greeting(member, host, int(port), end)
    except ConnectionRefusedError:
        return ProbeAnswer.REFUSED if is_ours(host) else ProbeAnswer.REJECTED
    except (ssl.SSLError, ConfigError):
        return ProbeAnswer.UNVERIFIED
    except (OSError, ValueError):
        return ProbeAnswer.SILENT
    return None if frame[3] == _SETTINGS else ProbeAnswer.FOREIGN


def _read_greeting(member: Member, host: str, port: int, end: float) -> bytes:
    """The first frame of whoever answers, whole."""
    source = active_certificate()
    with socket.create_connection((host, port), timeout=_time_left(end)) as connection:
        if source is not None:
            return _greet_securely(connection, source, member, end)
        connection.sendall(_HELLO)
        connection.settimeout(_time_left(end))
        frame = connection.recv(_FRAME_BYTES, socket.MSG_WAITALL)
    if len(frame) < _FRAME_BYTES:
        raise ConnectionResetError("it ended the connection before its first word")
    return frame


def _greet_securely(
    connection: socket.socket, source: CertificateSource, member: Member, end: float
) -> bytes:
    """The first frame of who has the member's role. A server that refuses our certificate says so only after
    the handshake; so nothing is sent, lest its closing resets the connection and takes its word along.
    """
    context = source.current().context
    name = source.identity.peer_name(member.role.label)
    with context.wrap_socket(connection, server_hostname=name) as secured:
        frame = b""
        while len(frame) < _FRAME_BYTES:
            secured.settimeout(_time_left(end))
            part = secured.recv(_FRAME_BYTES - len(frame))
            if not part:
                raise ssl.SSLEOFError("it ended the connection before its first word")
            frame += part
        return frame


def _ask_member(member: Member, end: float) -> ProbeAnswer:
    channel = open_channel(member.address, role=member.role.label)
    request = member_pb2.ProbeRequest(incarnation=member.incarnation)
    try:
        reply = member_pb2_grpc.MemberServiceStub(channel).Probe(
            request, timeout=_time_left(end), wait_for_ready=True
        )
    except grpc.RpcError as error:
        return _judge_error(error)
    finally:
        channel.close()
    return _judge_reply(member, reply)


def _time_left(end: float) -> float:
    return max(0.001, end - time.monotonic())


def _judge_error(error: grpc.RpcError) -> ProbeAnswer:
    """A server without this method is no member of ours. That may be a proxy on the way (gRPC reads its
    HTTP 404 so, too).
    """
    if isinstance(error, grpc.Call) and error.code() is grpc.StatusCode.UNIMPLEMENTED:
        return ProbeAnswer.FOREIGN
    return ProbeAnswer.ALIVE if isinstance(errors.from_rpc(error), errors.Busy) else ProbeAnswer.SILENT


def _judge_reply(member: Member, reply: member_pb2.ProbeReply) -> ProbeAnswer:
    if reply.member.incarnation != member.incarnation:
        return ProbeAnswer.STRANGER
    if member.role is not Role.SHARD:
        return ProbeAnswer.ALIVE
    if reply.idle > HUNG_SECONDS:
        return ProbeAnswer.HUNG
    return ProbeAnswer.LAPSED if reply.lapsed else ProbeAnswer.ALIVE
