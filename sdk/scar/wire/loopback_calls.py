"""Small calls to a process of this machine, over TCP connections of their own.

What a call of gRPC costs in Python, some 500 us, is mostly its switches of threads; a plain connection costs
10. So who is called offers a port (``ShardControl.Loopback``, over gRPC, where the caller is checked as
always), and unary calls go there: the same handlers, the same errors. Where that cannot be, they go by gRPC.

A connection carries one call at a time. After a call that failed an answer may still come, so it is closed.
"""

from __future__ import annotations

import hmac
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from typing import Any, Generic, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from scar.errors import Internal, InvalidRequest, ScarError, Temporary
from scar.v1.loopback_pb2 import LoopbackAnswer, LoopbackCall, LoopbackReply
from scar.wire.small_message import SMALL_BYTES

HOST = "127.0.0.1"
SECRET_BYTES = 16  # of a key, and of a proof
FRAME_BYTES = SMALL_BYTES  # of a message, at most
HEAD_BYTES = 32 << 10  # of what stands before it
FRAME_SECONDS = 10.0  # for a frame whose beginning is there, where nobody waits for less
CONNECTIONS = 16  # of one client to one process
CONNECT_SECONDS = 1.0

_LENGTHS = struct.Struct(">II")
_READ_BYTES = 64 << 10
_CODES = {code.value[0]: code for code in grpc.StatusCode}

Asked = TypeVar("Asked")
Answered = TypeVar("Answered")


class LoopbackError(grpc.RpcError):  # type: ignore[misc]  # grpc has no types
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


def send_frame(connection: socket.socket, head: Message, message: bytes = b"") -> None:
    """Raises :class:`OSError`."""
    about = head.SerializeToString()
    start = _LENGTHS.pack(len(about), len(message)) + about
    if len(message) <= _READ_BYTES:
        connection.sendall(start + message)
    else:  # a copy costs more than a second call
        connection.sendall(start)
        connection.sendall(message)


def receive_frame(connection: socket.socket, seconds: float | None) -> tuple[bytes, bytes | bytearray]:
    """(head, message) of one frame, which began within ``seconds`` (None: whenever it does), and was whole
    within as many. The message has memory of its own, so what is aligned in it is aligned.

    Raises :class:`OSError` when it does not come, and :class:`InvalidRequest` for one that is too large, or
    more than one.
    """
    arriving = _Arriving(connection, seconds)
    start = arriving.read_until(b"", _LENGTHS.size)
    about, size = _LENGTHS.unpack_from(start)
    if about > HEAD_BYTES or size > FRAME_BYTES:
        raise InvalidRequest(
            f"a loopback frame has {about} and {size} bytes, the limits are {HEAD_BYTES} and {FRAME_BYTES}"
        )
    body = _LENGTHS.size + about
    start = arriving.read_until(start, min(body + size, _READ_BYTES))
    if len(start) > body + size:
        raise InvalidRequest("a loopback frame has bytes beyond its end")
    head = start[_LENGTHS.size : body]
    if len(start) == body + size:
        return head, start[body:]
    message = bytearray(size)
    message[: len(start) - body] = memoryview(start)[body:]
    arriving.read_into(memoryview(message)[len(start) - body :])
    return head, message


class _Arriving:
    """Bytes of one frame, the first of which may take ``seconds``, and all others together as many."""

    def __init__(self, connection: socket.socket, seconds: float | None) -> None:
        self._connection = connection
        self._seconds = seconds
        self._began: float | None = None  # when its first bytes came: before, nobody sent anything

    def read_until(self, data: bytes, size: int) -> bytes:
        """At least so many bytes, which begin with ``data``."""
        while len(data) < size:
            self._set_timeout()
            more = self._connection.recv(_READ_BYTES)
            if not more:
                raise ConnectionResetError("the connection was closed")
            self._began = self._began or time.monotonic()
            data += more
        return data

    def read_into(self, room: memoryview) -> None:
        while room:
            self._set_timeout()
            count = self._connection.recv_into(room)
            if not count:
                raise ConnectionResetError("the connection was closed")
            room = room[count:]

    def _set_timeout(self) -> None:
        if self._began is None:
            self._connection.settimeout(self._seconds)
        else:
            left = self._began + (self._seconds or FRAME_SECONDS) - time.monotonic()
            self._connection.settimeout(max(0.001, left))


def decode_call(data: bytes) -> LoopbackCall:
    """Raises :class:`InvalidRequest`."""
    try:
        return LoopbackCall.FromString(data)
    except DecodeError:
        raise InvalidRequest("a loopback frame is no call") from None


def decode_answer(data: bytes) -> LoopbackAnswer:
    """Raises :class:`InvalidRequest`."""
    try:
        return LoopbackAnswer.FromString(data)
    except DecodeError:
        raise InvalidRequest("a loopback frame is no answer") from None


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


class LoopbackConnections:
    """All connections to one process. ``ask``: where it listens, within so many seconds. Any thread may call.

    The first call asks. A process that offers nothing is not asked again.
    """

    def __init__(self, ask: Callable[[float], LoopbackReply]) -> None:
        self._ask = ask
        self._lock = Lock()
        self._asking = Lock()
        self._offer: LoopbackReply | None = None
        self._refused = False
        self._idle: list[socket.socket] = []
        self._open: set[socket.socket] = set()

    def call(self, method: str, message: bytes, timeout: float) -> bytes | bytearray | None:
        """The message of the answer; None: nobody has been asked, the call may go by gRPC.

        Raises :class:`LoopbackError`.
        """
        if len(message) > FRAME_BYTES:
            return None
        connection = self._take_connection(timeout)
        if connection is None:
            return None
        try:
            answer, reply = _exchange(connection, LoopbackCall(method=method, seconds=timeout), message)
        except TimeoutError:
            self._drop(connection)
            raise LoopbackError(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded") from None
        except OSError as error:
            self._drop(connection)
            raise LoopbackError(grpc.StatusCode.UNAVAILABLE, f"Socket closed: {error}") from None
        except BaseException:
            self._drop(connection)
            raise
        with self._lock:
            self._idle.append(connection)
        if answer.code:
            code = _CODES.get(answer.code, grpc.StatusCode.UNKNOWN)
            raise LoopbackError(code, answer.details, tuple(answer.trailing.items()))
        return reply

    def close(self) -> None:
        """Ends calls under way: they fail as UNAVAILABLE."""
        with self._lock:
            self._refused = True
            connections = list(self._open)
            self._idle = []
        for connection in connections:
            _shut_down(connection)

    def _take_connection(self, timeout: float) -> socket.socket | None:
        with self._lock:
            if self._refused:
                return None
            if self._idle:
                return self._idle.pop()
            if len(self._open) >= CONNECTIONS:
                return None
        offer = self._offer or self._find_offer(timeout)
        connection = None if offer is None else _connect(offer)
        with self._lock:
            if connection is None:
                self._refused |= offer is not None
            elif self._refused:
                connection.close()
                return None
            else:
                self._open.add(connection)
        return connection

    def _find_offer(self, timeout: float) -> LoopbackReply | None:
        """None while another thread asks."""
        if not self._asking.acquire(blocking=False):
            return None
        try:
            offer = self._ask(timeout)
            if offer.port:
                self._offer = offer
            else:
                self._refused = True
        except Temporary:  # the call itself will hear of it
            return None
        except ScarError:
            self._refused = True
        finally:
            self._asking.release()
        return self._offer

    def _drop(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.discard(connection)
        connection.close()


class LoopbackMethod(Generic[Asked, Answered]):
    """A unary method of a stub that goes over loopback connections where it can."""

    def __init__(
        self,
        connections: LoopbackConnections,
        name: str,
        otherwise: Callable[..., Answered],
        serialize: Callable[[Asked], bytes],
        deserialize: Callable[[Any], Answered],
    ) -> None:
        self._connections = connections
        self._name = name
        self._otherwise = otherwise
        self._serialize = serialize
        self._deserialize = deserialize

    def __call__(self, request: Asked, timeout: float) -> Answered:
        answer = self._connections.call(self._name, self._serialize(request), timeout)
        return self._otherwise(request, timeout=timeout) if answer is None else self._deserialize(answer)


def _exchange(
    connection: socket.socket, call: LoopbackCall, message: bytes
) -> tuple[LoopbackAnswer, bytes | bytearray]:
    connection.settimeout(call.seconds)
    send_frame(connection, call, message)
    try:
        head, reply = receive_frame(connection, call.seconds)
        return decode_answer(head), reply
    except InvalidRequest as error:
        raise Internal(error.message) from None


def _connect(offer: LoopbackReply) -> socket.socket | None:
    """None: who offered it is not there, as behind a tunnel from another machine."""
    connection = socket.socket()
    with suppress(OSError):
        connection.settimeout(CONNECT_SECONDS)
        connection.connect((HOST, offer.port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(offer.key)
        if hmac.compare_digest(receive_secret(connection, CONNECT_SECONDS), offer.proof):
            return connection
    connection.close()
    return None


def _shut_down(connection: socket.socket) -> None:
    """Wakes who waits for it, who then closes it."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
