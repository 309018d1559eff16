"""An open stream to each member: when a process dies, its kernel closes the connection, and we hear of it at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import Enum

import grpc

from scar.placement import Member
from scar.transport import connect
from scar.v1 import member_pb2, member_pb2_grpc

STREAM_SECONDS = 3600.0  # a stream is opened anew after this; that is no sign of anything
REOPEN_SECONDS = 0.3
HUNG_UP = "Socket closed"  # how gRPC describes a connection that the other side has ended in order; a reset reads otherwise


class End(Enum):
    """Why a stream is over."""

    TIME = "it only reached its time limit, or we closed it"
    BROKEN = "the connection broke, or there was none"
    HUNG_UP = "the other side ended it"


class Watcher:
    """One stream to one member, in a thread of its own. ``broken(member, hung_up)`` is called, from that thread, each time."""

    def __init__(self, member: Member, broken: Callable[[Member, bool], None]) -> None:
        self._member = member
        self._broken = broken
        self._closed = threading.Event()
        self._channel = connect(member.address)

    def run(self) -> None:
        """Until ``close``."""
        stub = member_pb2_grpc.MemberServiceStub(self._channel)
        while not self._closed.is_set():
            end = self._follow(stub)
            if end is not End.TIME and not self._closed.is_set():
                self._broken(self._member, end is End.HUNG_UP)
            self._closed.wait(REOPEN_SECONDS)

    def close(self) -> None:
        self._closed.set()
        self._channel.close()

    def _follow(self, stub: member_pb2_grpc.MemberServiceStub) -> End:
        """Wait for the stream's end."""
        try:
            for _ in stub.Watch(member_pb2.ProbeRequest(incarnation=self._member.incarnation), timeout=STREAM_SECONDS):
                pass
        except grpc.RpcError as error:
            return _reason(error)
        except ValueError:  # what gRPC raises for a call on a channel that was closed
            return End.TIME if self._closed.is_set() else End.BROKEN
        return End.HUNG_UP  # a member that stops ends its streams, when it acknowledges nothing any more


def _reason(error: grpc.RpcError) -> End:
    if not isinstance(error, grpc.Call):
        return End.BROKEN
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return End.TIME
    return End.HUNG_UP if HUNG_UP in (error.details() or "") else End.BROKEN
