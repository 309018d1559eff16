"""Calls over TCP connections of their own, without gRPC.

What a call of gRPC costs in Python, some 500 us, is mostly its switches of threads; a plain connection costs
10, and moves large messages at twice the speed. So who is called offers a port (``ShardControl.DirectPort``,
over gRPC, where the caller is checked as always), and calls go there: the same handlers, the same errors.
Where that cannot be, they go by gRPC. Between machines connections are encrypted where gRPC's are.

A connection carries one call at a time. After a call that failed an answer may still come, so it is closed.
"""

from __future__ import annotations

import hmac
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain
from threading import Lock
from typing import Any, Generic, TypeVar

import grpc
from google.protobuf.message import DecodeError

from scar.errors import Internal, InvalidRequest, ScarError, Temporary
from scar.v1.direct_pb2 import DirectAnswer, DirectCall, DirectReply
from scar.wire.codec import Wire, WireParts
from scar.wire.credentials import active_certificate
from scar.wire.direct_frames import (
    FRAME_BYTES,
    DirectError,
    FrameReader,
    decode_answer,
    end_connection,
    receive_secret,
    send_frame,
)
from scar.wire.loopback import is_loopback
from scar.wire.transport import KEEPALIVE_MS, PING_TIMEOUT_MS

HOST = "127.0.0.1"
CONNECTIONS = 16  # of one client to one process
CONNECT_SECONDS = 1.0
AGAIN_SECONDS = 60.0  # until a port that could not be reached is tried again

_CODES = {code.value[0]: code for code in grpc.StatusCode}
_MORE = DirectCall(more=True).SerializeToString()

Asked = TypeVar("Asked")
Answered = TypeVar("Answered")


class DirectConnection:
    """One connection, with one call at a time."""

    def __init__(self, opened: socket.socket) -> None:
        self.socket = opened
        self._reader = FrameReader(opened)

    def send(self, end: float, head: bytes, *message: Wire) -> None:
        """Raises :class:`OSError`, also when it is not sent at ``end``."""
        self.socket.settimeout(max(0.001, end - time.monotonic()))
        send_frame(self.socket, head, *message)

    def receive(self, end: float, lasting: bool = True) -> tuple[DirectAnswer, Wire]:
        """The next frame of an answer; not ``lasting``: valid until the one after it. Raises
        :class:`OSError`, and :class:`Internal` for what is none.
        """
        try:
            left = max(0.001, end - time.monotonic())
            head, message = self._reader.read(left, left, lasting)
            answer = decode_answer(head)
            if not answer.more:
                self._reader.ensure_end()
        except InvalidRequest as error:
            raise Internal(error.message) from None
        return answer, message


class DirectConnections:
    """All connections to one process. ``address``: the host and port of its gRPC server, ``role``: whose
    certificate it has, ``ask``: where it listens, within so many seconds. Any thread may call.

    The first call asks. A process that offers nothing is not asked again.
    """

    def __init__(self, address: str, role: str, ask: Callable[[float], DirectReply]) -> None:
        self._host = HOST if is_loopback(address) else address.rpartition(":")[0].strip("[]")
        self._role = role
        self._certificate = active_certificate()
        self._ask = ask
        self._lock = Lock()
        self._asking = Lock()
        self._offer: DirectReply | None = None
        self._refused = False
        self._again = 0.0  # when a port that could not be reached is tried again
        self._idle: list[DirectConnection] = []
        self._open: set[DirectConnection] = set()

    def call(self, method: str, message: bytes, timeout: float) -> Wire | None:
        """The message of the answer; None: nobody has been asked, the call may go by gRPC.

        Raises :class:`DirectError`.
        """
        if len(message) > FRAME_BYTES:
            return None
        return self._exchange(((_head(method, timeout), (message,)),), timeout)

    def send_stream(self, method: str, messages: Iterable[WireParts], timeout: float) -> Wire | None:
        """As :meth:`call`, of many messages. With None no message has been taken."""
        begin = (_head(method, timeout, more=True), ())
        more = ((_MORE, parts) for parts in messages)
        return self._exchange(chain((begin,), more, ((b"", ()),)), timeout)

    def _exchange(self, frames: Iterable[tuple[bytes, WireParts]], timeout: float) -> Wire | None:
        """Each frame as its head and the parts of its message."""
        connection = self._take_connection(timeout)
        if connection is None:
            return None
        end = time.monotonic() + timeout
        try:
            for head, message in frames:
                connection.send(end, head, *message)
            answer, reply = connection.receive(end)
        except BaseException as error:
            raise self._failed(connection, error) from None
        self.finish(connection, answer)
        return reply

    def receive_stream(
        self, method: str, message: bytes, timeout: float, lasting: bool = False
    ) -> DirectStream | None:
        """As :meth:`call`, with an answer of many messages. ``lasting``: as of :class:`DirectStream`."""
        connection = self._take_connection(timeout) if len(message) <= FRAME_BYTES else None
        if connection is None:
            return None
        end = time.monotonic() + timeout
        try:
            connection.send(end, _head(method, timeout), message)
        except BaseException as error:
            raise self._failed(connection, error) from None
        return DirectStream(self, connection, end, lasting)

    def finish(self, connection: DirectConnection, answer: DirectAnswer) -> None:
        """The call is over, and the connection free. Raises what the answer says."""
        with self._lock:
            self._idle.append(connection)
        if answer.code:
            code = _CODES.get(answer.code, grpc.StatusCode.UNKNOWN)
            raise DirectError(code, answer.details, tuple(answer.trailing.items()))

    def drop(self, connection: DirectConnection) -> None:
        """Nothing more goes over it."""
        with self._lock:
            self._open.discard(connection)
        connection.socket.close()

    def close(self) -> None:
        """Ends calls under way: they fail as UNAVAILABLE."""
        with self._lock:
            self._refused = True
            connections = list(self._open)
            self._idle = []
        for connection in connections:
            end_connection(connection.socket)

    def _failed(self, connection: DirectConnection, error: BaseException) -> BaseException:
        """What to raise after this one."""
        self.drop(connection)
        return as_call_error(error)

    def _take_connection(self, timeout: float) -> DirectConnection | None:
        with self._lock:
            if self._refused:
                return None
            if self._idle:
                return self._idle.pop()
            if len(self._open) >= CONNECTIONS or time.monotonic() < self._again:
                return None
        offer = self._offer or self._find_offer(timeout)
        opened = None if offer is None else self._connect(offer)
        with self._lock:
            if opened is None:
                if offer is not None:
                    self._offer = None
                    self._again = time.monotonic() + AGAIN_SECONDS
                return None
            if self._refused:
                opened.close()
                return None
            connection = DirectConnection(opened)
            self._open.add(connection)
        return connection

    def _connect(self, offer: DirectReply) -> socket.socket | None:
        """None: who offered it is not there, as behind a tunnel from another machine or a network policy."""
        with suppress(OSError):
            opened = socket.create_connection((self._host, offer.port), CONNECT_SECONDS)
            try:
                opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self._host != HOST:
                    watch_peer(opened)
                    opened = self._encrypt(opened)
                opened.sendall(offer.key)
                if hmac.compare_digest(receive_secret(opened, CONNECT_SECONDS), offer.proof):
                    return opened
            except BaseException:
                opened.close()
                raise
            opened.close()
        return None

    def _encrypt(self, opened: socket.socket) -> socket.socket:
        """As this process encrypts calls by gRPC. Raises :class:`OSError` unless who answers has the role."""
        if self._certificate is None:
            return opened
        own = self._certificate.current()
        return own.context.wrap_socket(opened, server_hostname=own.identity.peer_name(self._role))

    def _find_offer(self, timeout: float) -> DirectReply | None:
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


class DirectStream(Iterator[Wire]):
    """The messages of an answer, as they come until ``end``, each valid until the next, or as long as it is
    held if they are ``lasting``. One that is not read to its end costs the connection.
    """

    def __init__(
        self, connections: DirectConnections, connection: DirectConnection, end: float, lasting: bool
    ) -> None:
        self._connections = connections
        self._connection: DirectConnection | None = connection
        self._end = end
        self._lasting = lasting

    def __next__(self) -> Wire:
        connection = self._connection
        if connection is None:
            raise StopIteration
        try:
            answer, message = connection.receive(self._end, self._lasting)
        except BaseException as error:
            self.cancel()
            raise as_call_error(error) from None
        if answer.more:
            return message
        self._connection = None
        self._connections.finish(connection, answer)
        raise StopIteration

    def cancel(self) -> None:
        """Nobody reads on."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._connections.drop(connection)


class DirectMethod(Generic[Asked, Answered]):
    """A unary method of a stub that goes over direct connections where it can."""

    def __init__(
        self,
        connections: DirectConnections,
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
        if answer is None:
            return self._otherwise(request, timeout=timeout)
        return as_message(self._deserialize, answer)


def as_message(deserialize: Callable[[Any], Answered], answer: Wire) -> Answered:
    """Raises :class:`Internal` for bytes that are none of its method."""
    try:
        return deserialize(answer)
    except DecodeError:
        raise Internal("a direct answer is no message of its method") from None


def as_call_error(error: BaseException) -> BaseException:
    """What gRPC would raise when a connection fails so."""
    if isinstance(error, TimeoutError):
        return DirectError(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")
    if isinstance(error, OSError):
        return DirectError(grpc.StatusCode.UNAVAILABLE, f"Socket closed: {error}")
    return error


def _head(method: str, timeout: float, more: bool = False) -> bytes:
    return DirectCall(method=method, seconds=timeout, more=more).SerializeToString()


def watch_peer(connection: socket.socket) -> None:
    """A machine that is gone without a word ends the connection, after as long as gRPC's pings do it."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", KEEPALIVE_MS // 1000),
        ("TCP_KEEPINTVL", PING_TIMEOUT_MS // 1000),
        ("TCP_KEEPCNT", 1),
        ("TCP_USER_TIMEOUT", KEEPALIVE_MS + PING_TIMEOUT_MS),
    ):
        if option := getattr(socket, name, None):  # not on every system
            connection.setsockopt(socket.IPPROTO_TCP, option, value)
