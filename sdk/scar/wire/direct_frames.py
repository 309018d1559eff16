"""What travels over direct connections (:mod:`scar.wire.direct_calls`): frames of a head and a message."""

from __future__ import annotations

import contextlib
import math
import socket
import ssl
import struct
import time

import grpc
import numpy as np
from google.protobuf.message import DecodeError

from scar.errors import InvalidRequest
from scar.v1.direct_pb2 import DirectAnswer, DirectCall
from scar.wire.codec import MAX_CHUNK_BYTES, Wire
from scar.wire.transport import SLOWEST_RATE

SECRET_BYTES = 16  # of a key, and of a proof
FRAME_BYTES = MAX_CHUNK_BYTES  # of a message, at most
HEAD_BYTES = 32 << 10  # of what stands before it
FRAME_SECONDS = 10.0  # for a frame whose beginning is there, or that is sent, where nobody waits for less

_LENGTHS = struct.Struct(">II")
_READ_BYTES = 64 << 10
_AND_MORE = getattr(socket, "MSG_MORE", 0)  # the rest of a packet follows

Frame = tuple[bytes, Wire]


class DirectError(grpc.RpcError):  # type: ignore[misc]  # grpc has no types
    """A call that failed, with what gRPC's own error would say."""

    def __init__(
        self, code: grpc.StatusCode, details: str, trailing: tuple[tuple[str, str], ...] = ()
    ) -> None:
        super().__init__(f"{code.name}: {details}")
        self._code = code
        self._details = details
        self._trailing = trailing

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._details

    def trailing_metadata(self) -> tuple[tuple[str, str], ...]:
        return self._trailing


def send_frame(connection: socket.socket, head: bytes, *message: Wire) -> None:
    """``message``: its parts, one after the other. Raises :class:`OSError`."""
    size = sum(map(len, message))
    start = _LENGTHS.pack(len(head), size) + head
    if size <= _READ_BYTES:
        connection.sendall(b"".join((start, *message)))
        return
    # a copy costs more than another call
    encrypted = isinstance(connection, ssl.SSLSocket)
    for part in (start, *message[:-1]):
        connection.sendall(part, 0 if encrypted else _AND_MORE)
    connection.sendall(message[-1])


class FrameReader:
    """Frames as they come from a connection. Bytes of the next one may have come with one that is read."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._rest = b""  # beyond the frame that was read last
        self._room = memoryview(b"")  # where messages go that nobody keeps
        self._began: float | None = None  # when the first bytes of a frame came; None: they have not
        self._seconds: float | None = None
        self._whole: float | None = None

    def read(self, seconds: float | None, whole: float | None = None, lasting: bool = True) -> Frame:
        """(head, message) of one frame, which began within ``seconds`` (None: whenever it does), and had all
        come ``whole`` seconds later (None: :func:`frame_seconds`). The message begins aligned, in memory of
        its own or, if it is not ``lasting``, in that of the one before, which is in the processor's cache.

        Raises :class:`OSError` when it does not come, and :class:`InvalidRequest` for one that is too large.
        """
        self._seconds = seconds
        self._whole = whole
        self._began = time.monotonic() if self._rest else None
        start = self._read_until(self._rest, _LENGTHS.size)
        about, size = _LENGTHS.unpack_from(start)
        if about > HEAD_BYTES or size > FRAME_BYTES:
            raise InvalidRequest(
                f"a direct frame has {about} and {size} bytes, the limits are {HEAD_BYTES} and {FRAME_BYTES}"
            )
        body = _LENGTHS.size + about
        end = body + size
        start = self._read_until(start, body, size)
        self._rest = start[end:]
        head = start[_LENGTHS.size : body]
        if len(start) >= end:
            return head, start[body:end]
        message = np.empty(size, np.uint8).data if lasting else self._take_room(size)
        message[: len(start) - body] = memoryview(start)[body:]
        self._read_into(message[len(start) - body :], size)
        return head, message

    def ensure_end(self) -> None:
        """Raises :class:`InvalidRequest` if more has come than was asked for."""
        if self._rest:
            raise InvalidRequest("a direct frame has bytes beyond its end")

    def _read_until(self, data: bytes, count: int, size: int = 0) -> bytes:
        """At least ``count`` bytes, which begin with ``data``. ``size``: of the message they belong to."""
        while len(data) < count:
            self._set_timeout(size)
            more = self._connection.recv(_READ_BYTES)
            if not more:
                raise ConnectionResetError("the connection was closed")
            self._began = self._began or time.monotonic()
            data += more
        return data

    def _take_room(self, size: int) -> memoryview:
        if len(self._room) < size:
            self._room = np.empty(size, np.uint8).data
        return self._room[:size]

    def _read_into(self, room: memoryview, size: int) -> None:
        end = self._set_timeout(size)  # once: encrypted bytes come in many pieces
        while room:
            count = self._connection.recv_into(room)
            if not count:
                raise ConnectionResetError("the connection was closed")
            room = room[count:]
            if time.monotonic() > end:
                raise TimeoutError("timed out")

    def _set_timeout(self, size: int) -> float:
        """When the frame has to be whole."""
        if self._began is None:
            self._connection.settimeout(self._seconds)
            return math.inf
        end = self._began + (self._whole or frame_seconds(size))
        self._connection.settimeout(max(0.001, end - time.monotonic()))
        return end


def frame_seconds(size: int) -> float:
    """For a message of so many bytes, where nobody says how long it may take."""
    return FRAME_SECONDS + size / SLOWEST_RATE


def decode_call(data: bytes) -> DirectCall:
    """Raises :class:`InvalidRequest`."""
    try:
        return DirectCall.FromString(data)
    except DecodeError:
        raise InvalidRequest("a direct frame is no call") from None


def decode_answer(data: bytes) -> DirectAnswer:
    """Raises :class:`InvalidRequest`."""
    try:
        return DirectAnswer.FromString(data)
    except DecodeError:
        raise InvalidRequest("a direct frame is no answer") from None


def receive_secret(connection: socket.socket, seconds: float) -> bytes:
    """Raises :class:`OSError`."""
    end = time.monotonic() + seconds
    data = b""
    while len(data) < SECRET_BYTES:
        connection.settimeout(max(0.001, end - time.monotonic()))
        more = connection.recv(SECRET_BYTES - len(data))
        if not more:
            raise ConnectionResetError("the connection was closed")
        data += more
    return data


def end_connection(connection: socket.socket, how: int = socket.SHUT_RDWR) -> None:
    """Wakes who waits for it, who then closes it. Of an encrypted one too, which would go on in the clear."""
    with contextlib.suppress(OSError):
        socket.socket.shutdown(connection, how)
