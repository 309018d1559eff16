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
from typing import Generic, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from scar.errors import Internal, InvalidRequest, ScarError, Temporary
from scar.v1.loopback_pb2 import LoopbackAnswer, LoopbackCall, LoopbackReply

HOST = "127.0.0.1"
SECRET_BYTES = 16  # of a key, and of a proof
FRAME_BYTES = 256 << 10  # of a message with its frame, at most
CONNECTIONS = 16  # of one client to one process
CONNECT_SECONDS = 1.0

_LENGTH = struct.Struct(">I")
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


def send_frame(connection: socket.socket, message: Message) -> None:
    """Raises :class:`OSError`."""
    data = message.SerializeToString()
    connection.sendall(_LENGTH.pack(len(data)) + data)


def receive_frame(connection: socket.socket, seconds: float | None) -> bytes:
    """One frame, which began within ``seconds`` (None: whenever it does), and was whole within as many.

    Raises :class:`OSError` when it does not come, and :class:`InvalidRequest` for one that is too large, or
    more than one.
    """
    connection.settimeout(seconds)
    data = connection.recv(_READ_BYTES)
    began = time.monotonic()
    while len(data) < _LENGTH.size or len(data) < _LENGTH.size + _LENGTH.unpack_from(data)[0]:
        if len(data) >= _LENGTH.size:
            _check_length(_LENGTH.unpack_from(data)[0])
        connection.settimeout(max(0.001, began + (seconds or CONNECT_SECONDS) - time.monotonic()))
        more = connection.recv(_READ_BYTES)
        if not more:
            raise ConnectionResetError("the connection was closed")
        data += more
    _check_length(len(data) - _LENGTH.size)
    if len(data) != _LENGTH.size + _LENGTH.unpack_from(data)[0]:
        raise InvalidRequest("a loopback frame has bytes beyond its end")
    return data[_LENGTH.size :]


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

    def call(self, method: str, message: bytes, timeout: float) -> bytes | None:
        """The answer's bytes; None: nobody has been asked, the call may go by gRPC.

        Raises :class:`LoopbackError`.
        """
        if len(message) > FRAME_BYTES // 2:
            return None
        connection = self._take_connection(timeout)
        if connection is None:
            return None
        try:
            answer = _exchange(connection, LoopbackCall(method=method, seconds=timeout, message=message))
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
        return answer.message

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
        deserialize: Callable[[bytes], Answered],
    ) -> None:
        self._connections = connections
        self._name = name
        self._otherwise = otherwise
        self._serialize = serialize
        self._deserialize = deserialize

    def __call__(self, request: Asked, timeout: float) -> Answered:
        answer = self._connections.call(self._name, self._serialize(request), timeout)
        return self._otherwise(request, timeout=timeout) if answer is None else self._deserialize(answer)


def _exchange(connection: socket.socket, call: LoopbackCall) -> LoopbackAnswer:
    connection.settimeout(call.seconds)
    send_frame(connection, call)
    try:
        return decode_answer(receive_frame(connection, call.seconds))
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


def _check_length(length: int) -> None:
    if length > FRAME_BYTES:
        raise InvalidRequest(f"a loopback frame has {length} bytes, the limit is {FRAME_BYTES}")
