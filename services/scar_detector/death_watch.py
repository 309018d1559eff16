"""An open stream to each member: when a process dies, its kernel closes the connection, and we hear of it
at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import Enum

import grpc

from scar.placement import Member
from scar.v1 import member_pb2, member_pb2_grpc
from scar.wire.transport import open_channel

STREAM_SECONDS = 3600.0  # a stream is opened again after this; that is no sign of anything
REOPEN_SECONDS = 0.3
STRANGER_PAUSE = 4.8  # the longest between two tries to reach a member that has never answered
# how gRPC describes a connection that the other side has ended in order; a reset reads otherwise
HUNG_UP = "Socket closed"


class StreamEnd(Enum):
    """Why a stream is over."""

    TIME = "it only reached its time limit, or we closed it"
    BROKEN = "the connection broke, or there was none"
    HUNG_UP = "the other side ended it"


class DeathWatch:
    """One stream to one member, in a thread of its own. From that thread ``on_broken(member, hung_up)`` is
    called each time, and ``on_answer(self)`` when the member has answered for the first time.
    """

    def __init__(
        self,
        member: Member,
        on_broken: Callable[[Member, bool], None],
        on_answer: Callable[[DeathWatch], None] = lambda _watch: None,
    ) -> None:
        self.member = member
        self._on_broken = on_broken
        self._on_answer = on_answer
        self._answered = False
        self._pause = REOPEN_SECONDS
        self._closed = threading.Event()
        self._channel = self._open_channel()
        self._lock = threading.Lock()

    def run(self) -> None:
        """Until ``close``."""
        while not self._closed.is_set():
            end = self._hold_stream()
            if end is not StreamEnd.TIME and not self._closed.is_set():
                self._on_broken(self.member, end is StreamEnd.HUNG_UP)
            if not self._answered:
                self._renew_channel()
            self._closed.wait(self._pause)
            self._pause = REOPEN_SECONDS if self._answered else min(2 * self._pause, STRANGER_PAUSE)

    def close(self) -> None:
        with self._lock:
            self._closed.set()
            self._channel.close()

    def _renew_channel(self) -> None:
        """Because one that was used tries to connect by itself, more often than a stranger is worth."""
        with self._lock:
            if not self._closed.is_set():
                self._channel.close()
                self._channel = self._open_channel()

    def _open_channel(self) -> grpc.Channel:
        return open_channel(self.member.address, role=self.member.role.label)

    def _hold_stream(self) -> StreamEnd:
        """Wait for the stream's end."""
        stub = member_pb2_grpc.MemberServiceStub(self._channel)
        answered = False
        try:
            request = member_pb2.ProbeRequest(incarnation=self.member.incarnation)
            for reply in stub.Watch(request, timeout=STREAM_SECONDS):
                answered = True
                self._note_reply(reply)
        except grpc.RpcError as error:
            return _end_of(error, answered)
        except ValueError:  # what gRPC raises for a call on a channel that was closed
            return StreamEnd.TIME if self._closed.is_set() else StreamEnd.BROKEN
        return (
            StreamEnd.HUNG_UP
        )  # a member that stops ends its streams, when it acknowledges nothing any more

    def _note_reply(self, reply: member_pb2.ProbeReply) -> None:
        if not self._answered and reply.member.incarnation == self.member.incarnation:
            self._answered = True
            self._on_answer(self)


def _end_of(error: grpc.RpcError, answered: bool) -> StreamEnd:
    """Who never answered cannot hang up: a server that refuses our certificate ends the connection in the
    same words.
    """
    if not isinstance(error, grpc.Call):
        return StreamEnd.BROKEN
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return StreamEnd.TIME
    hung_up = answered and HUNG_UP in (error.details() or "")
    return StreamEnd.HUNG_UP if hung_up else StreamEnd.BROKEN
