"""Serves small calls of processes of this machine over TCP connections of their own
(:mod:`scar.wire.loopback_calls`): the handlers of the gRPC server, behind the same guard.

Nothing listens until the first caller asks where to. Who asks is known by that call, over gRPC; a connection
that begins with the key from its answer acts for the same caller.
"""

from __future__ import annotations

import logging
import secrets
import select
import socket
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from threading import Condition, Lock, Thread
from types import SimpleNamespace
from typing import Any, NoReturn

import grpc

from scar.errors import InvalidRequest
from scar.v1.loopback_pb2 import LoopbackAnswer, LoopbackReply
from scar.wire.loopback_calls import (
    HOST,
    SECRET_BYTES,
    decode_call,
    receive_frame,
    receive_secret,
    send_frame,
)
from scar_runtime.process.addresses import is_local_peer
from scar_runtime.process.interceptors import OURS

CONNECTIONS = 256  # at a time, each with a thread; who comes then uses gRPC
CALLERS = 1024  # whose keys are known: the newest
KEY_SECONDS = 2.0  # for a new connection to show its key

_log = logging.getLogger(__name__)
Trailing = Sequence[tuple[str, str | bytes]]


@dataclass(frozen=True)
class LoopbackCaller:
    """Who asked for a port, as gRPC knew it."""

    peer: str
    identity: Mapping[str, list[bytes]]
    metadata: Trailing
    proof: bytes = field(default_factory=lambda: secrets.token_bytes(SECRET_BYTES))


class Aborted(Exception):
    """A handler has ended its call with an error."""

    def __init__(self, answer: LoopbackAnswer) -> None:
        super().__init__(answer.details)
        self.answer = answer


class LoopbackContext:
    """What handlers ask of :class:`grpc.ServicerContext`."""

    def __init__(self, caller: LoopbackCaller, seconds: float, connection: socket.socket) -> None:
        self._caller = caller
        self._end = time.monotonic() + seconds
        self._connection = connection
        self._trailing: Trailing = ()

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
        arriving = select.poll()
        try:
            arriving.register(self._connection, select.POLLIN)
            return not arriving.poll(0) or self._connection.recv(1, socket.MSG_PEEK) != b""
        except (OSError, ValueError):  # broken, or closed here
            return False

    def set_trailing_metadata(self, trailing: Trailing) -> None:
        self._trailing = trailing

    def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        trailing = {key: value for key, value in self._trailing if isinstance(value, str)}
        raise Aborted(_failed(code, details, trailing))


class LoopbackServer:
    """``interceptors``: those of the gRPC server. ``allowed``: False: no port is offered.

    Services are added as to a :class:`grpc.Server`.
    """

    def __init__(self, interceptors: Sequence[grpc.ServerInterceptor], allowed: bool = True) -> None:
        self._interceptors = interceptors
        self._allowed = allowed
        self._handlers: list[grpc.GenericRpcHandler] = []
        self._found: dict[str, grpc.RpcMethodHandler] = {}  # by method
        self._callers: OrderedDict[bytes, LoopbackCaller] = OrderedDict()  # by key
        self._lock = Lock()
        self._listener: socket.socket | None = None
        self._connections: set[socket.socket] = set()
        self._ended = Condition(self._lock)  # a connection has

    def add_generic_rpc_handlers(self, handlers: Iterable[grpc.GenericRpcHandler]) -> None:
        self._handlers += handlers

    def add_registered_method_handlers(self, service: str, handlers: Any) -> None:
        """The same handlers are given as generic ones, too."""

    def offer_port(self, context: grpc.ServicerContext) -> LoopbackReply:
        """Where the caller's small calls may go from now on; port 0 for one of another machine."""
        if not is_local_peer(context.peer()):
            return LoopbackReply()
        caller = LoopbackCaller(context.peer(), context.auth_context(), tuple(context.invocation_metadata()))
        key = secrets.token_bytes(SECRET_BYTES)
        with self._lock:
            port = self._listen()
            if not port:
                return LoopbackReply()
            self._callers[key] = caller
            while len(self._callers) > CALLERS:
                self._callers.popitem(last=False)
        return LoopbackReply(port=port, key=key, proof=caller.proof)

    def stop(self, grace: float) -> None:
        """No new calls; those under way have so many seconds."""
        end = time.monotonic() + grace
        with self._lock:
            self._allowed = False
            listener, self._listener = self._listener, None
            for connection in self._connections:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RD)  # the next call is the connection's end
        if listener is not None:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        with self._lock:
            while self._connections and time.monotonic() < end:
                self._ended.wait(end - time.monotonic())
            for connection in self._connections:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def _listen(self) -> int:
        """The port; 0: there is none. The lock is held."""
        if not self._allowed:
            return 0
        if self._listener is None:
            try:
                listener = socket.create_server((HOST, 0), backlog=CONNECTIONS)
            except OSError as error:
                _log.warning("loopback.unavailable", extra={"reason": str(error)})
                self._allowed = False
                return 0
            self._listener = listener
            Thread(target=self._accept, args=(listener,), name="loopback", daemon=True).start()
        return int(self._listener.getsockname()[1])

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                if self._listener is not listener:
                    return
                time.sleep(0.1)  # too many files are open: who waits has gRPC
                continue
            with self._lock:
                full = not self._allowed or len(self._connections) >= CONNECTIONS
                if not full:
                    self._connections.add(connection)
            if full:
                connection.close()
            else:
                Thread(target=self._serve, args=(connection,), name="loopback-call", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with closing(connection), suppress(OSError, InvalidRequest):
                self._answer_calls(connection)
        finally:
            with self._lock:
                self._connections.discard(connection)
                self._ended.notify_all()

    def _answer_calls(self, connection: socket.socket) -> None:
        """Until its end. Raises :class:`OSError`, and what a frame that is none raises."""
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        key = receive_secret(connection, KEY_SECONDS)
        with self._lock:
            caller = self._callers.get(key)
        if caller is None:
            return
        connection.sendall(caller.proof)
        while True:
            head, message = receive_frame(connection, None)
            call = decode_call(head)
            context = LoopbackContext(caller, call.seconds, connection)
            send_frame(connection, *self._answer(call.method, message, context))

    def _answer(
        self, method: str, message: bytes | bytearray, context: LoopbackContext
    ) -> tuple[LoopbackAnswer, bytes]:
        handler = self._find_handler(OURS + method)
        if handler is None or handler.stream_unary is None:
            return _failed(grpc.StatusCode.UNIMPLEMENTED, f"no unary method {method[:100]}"), b""
        try:
            answer = handler.stream_unary(iter((message,)), context)
            serialize = handler.response_serializer
            return LoopbackAnswer(), answer if serialize is None else serialize(answer)
        except Aborted as ended:
            return ended.answer, b""
        except Exception:
            _log.exception("loopback.failed", extra={"method": method})
            return _failed(grpc.StatusCode.UNKNOWN, f"{method} failed"), b""

    def _find_handler(self, path: str) -> grpc.RpcMethodHandler | None:
        """Behind the guard, which makes all unary methods take a stream of one request."""
        if path not in self._found:
            find: Callable[[Any], grpc.RpcMethodHandler | None] = self._find_registered
            for interceptor in reversed(self._interceptors):
                find = partial(interceptor.intercept_service, find)
            details = SimpleNamespace(method=path, invocation_metadata=())
            handler = find(details)
            if handler is None:
                return None  # strangers' names are not kept
            self._found[path] = handler
        return self._found[path]

    def _find_registered(self, details: Any) -> grpc.RpcMethodHandler | None:
        found = (handlers.service(details) for handlers in self._handlers)
        return next((handler for handler in found if handler is not None), None)


def _failed(code: grpc.StatusCode, details: str, trailing: Mapping[str, str] | None = None) -> LoopbackAnswer:
    return LoopbackAnswer(code=code.value[0], details=details, trailing=trailing)
