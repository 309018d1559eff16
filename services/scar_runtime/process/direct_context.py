"""One direct call at its server: what handlers ask of gRPC's context, and the messages of its request."""

from __future__ import annotations

import secrets
import select
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

import grpc

from scar.errors import InvalidRequest
from scar.v1.direct_pb2 import DirectAnswer, DirectCall
from scar.wire.codec import Wire
from scar.wire.direct_calls import as_call_error
from scar.wire.direct_frames import (
    FRAME_SECONDS,
    SECRET_BYTES,
    DirectError,
    FrameReader,
    decode_call,
    end_connection,
)

Trailing = Sequence[tuple[str, str | bytes]]


@dataclass(frozen=True)
class DirectCaller:
    """Who asked for a port, as gRPC knew it."""

    peer: str
    identity: Mapping[str, list[bytes]]
    metadata: Trailing
    proof: bytes = field(default_factory=lambda: secrets.token_bytes(SECRET_BYTES))


class Aborted(Exception):
    """A handler has ended its call with an error."""

    def __init__(self, answer: DirectAnswer) -> None:
        super().__init__(answer.details)
        self.answer = answer


class DirectContext:
    """What handlers ask of :class:`grpc.ServicerContext`."""

    def __init__(self, caller: DirectCaller, seconds: float, connection: socket.socket) -> None:
        self._caller = caller
        self._end = time.monotonic() + seconds
        self._connection = connection
        self._trailing: Trailing = ()
        self._cancelled = False

    def peer(self) -> str:
        return self._caller.peer

    def auth_context(self) -> Mapping[str, list[bytes]]:
        return self._caller.identity

    def invocation_metadata(self) -> Trailing:
        return self._caller.metadata

    def time_remaining(self) -> float:
        return max(0.0, self._end - time.monotonic())

    def is_active(self) -> bool:
        """Whether the caller is still there: nothing has come from it, or more than its end. ``recv`` alone
        would wait on a connection with a time limit, whatever its flags.
        """
        if self._cancelled:  # by us, and it may still hear why
            return True
        arriving = select.poll()
        try:
            arriving.register(self._connection, select.POLLIN)
            # what has come is looked at as it came, encrypted or not
            return not arriving.poll(0) or socket.socket.recv(self._connection, 1, socket.MSG_PEEK) != b""
        except (OSError, ValueError):  # broken, or closed here
            return False

    def set_trailing_metadata(self, trailing: Trailing) -> None:
        self._trailing = trailing

    def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        trailing = {key: value for key, value in self._trailing if isinstance(value, str)}
        raise Aborted(failed(code, details, trailing))

    def cancel(self) -> None:
        """Wakes the handler where it waits for more of its request."""
        self._cancelled = True
        end_connection(self._connection, socket.SHUT_RD)


class RequestMessages(Iterator[Wire]):
    """The messages of one request, the first of which may have come with ``call``."""

    def __init__(self, reader: FrameReader, call: DirectCall, message: Wire) -> None:
        self._reader = reader
        self._more = call.more
        self._first: Wire | None = None if call.more else message
        self.lost = False  # the connection is of no more use

    def __next__(self) -> Wire:
        if self._first is not None:
            first, self._first = self._first, None
            return first
        if not self._more:
            raise StopIteration
        try:
            head, message = self._reader.read(FRAME_SECONDS)
            self._more = bool(head) and decode_call(head).more
        except (OSError, InvalidRequest) as error:
            self._more = False
            self.lost = True
            if isinstance(error, OSError):
                raise as_call_error(error) from None
            raise DirectError(error.code, error.message) from None
        if not self._more:
            raise StopIteration
        return message

    def drain(self) -> None:
        """Take what still comes: a caller hears an answer when it has sent everything."""
        try:
            for _ in self:
                pass
        except DirectError:
            return


def failed(code: grpc.StatusCode, details: str, trailing: Mapping[str, str] | None = None) -> DirectAnswer:
    return DirectAnswer(code=code.value[0], details=details, trailing=trailing)
