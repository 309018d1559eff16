"""An open stream to each member: when a process dies, the kernel closes the connection, and we hear of it at once."""

from __future__ import annotations

import threading
from collections.abc import Callable

import grpc

from scar.placement import Member
from scar.transport import connect
from scar.v1 import member_pb2, member_pb2_grpc

STREAM_SECONDS = 3600.0  # a stream is opened anew after this; that is no sign of anything
REOPEN_SECONDS = 0.3


class Watcher:
    """One stream to one member, in a thread of its own. ``broken`` is called, from that thread, each time it breaks."""

    def __init__(self, member: Member, broken: Callable[[Member], None]) -> None:
        self._member = member
        self._broken = broken
        self._closed = threading.Event()
        self._channel = connect(member.address)

    def run(self) -> None:
        """Until ``close``."""
        stub = member_pb2_grpc.MemberServiceStub(self._channel)
        while not self._closed.is_set():
            if not self._follow(stub) and not self._closed.is_set():
                self._broken(self._member)
            self._closed.wait(REOPEN_SECONDS)

    def close(self) -> None:
        self._closed.set()
        self._channel.close()

    def _follow(self, stub: member_pb2_grpc.MemberServiceStub) -> bool:
        """Wait for the stream's end. True: it only reached its time limit."""
        try:
            for _ in stub.Watch(member_pb2.ProbeRequest(incarnation=self._member.incarnation), timeout=STREAM_SECONDS):
                pass
        except grpc.RpcError as error:
            return isinstance(error, grpc.Call) and error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        except ValueError:  # what gRPC raises for a call on a channel that was closed
            return self._closed.is_set()
        return False
