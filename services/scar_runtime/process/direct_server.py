"""Serves calls over TCP connections of their own (:mod:`scar.wire.direct_calls`): the handlers of the gRPC
server, behind the same guard.

Nothing listens until the first caller asks where to. Who asks is known by that call, over gRPC; a connection
that begins with the key from its answer acts for the same caller. Callers of this machine have a port of
their own, without encryption.
"""

from __future__ import annotations

import logging
import secrets
import socket
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from functools import partial
from threading import Condition, Lock, Thread
from types import SimpleNamespace
from typing import Any

import grpc

from scar.errors import InvalidRequest
from scar.v1.direct_pb2 import DirectAnswer, DirectReply
from scar.wire.codec import Wire
from scar.wire.credentials import active_certificate
from scar.wire.direct_calls import HOST, watch_peer
from scar.wire.direct_frames import (
    SECRET_BYTES,
    FrameReader,
    decode_call,
    end_connection,
    frame_seconds,
    receive_secret,
    send_frame,
)
from scar.wire.loopback import is_loopback
from scar_runtime.process.addresses import is_local_peer, split_address
from scar_runtime.process.direct_context import (
    Aborted,
    DirectCaller,
    DirectContext,
    RequestMessages,
    failed,
)
from scar_runtime.process.interceptors import OURS

CONNECTIONS = 256  # at a time, each with a thread; who comes then uses gRPC
STRANGERS = 32  # of them that have not shown a key yet
CALLERS = 1024  # whose keys are known: the newest
KEY_SECONDS = 2.0  # for a new connection to show its key

_MORE = DirectAnswer(more=True).SerializeToString()
_log = logging.getLogger(__name__)


class DirectServer:
    """``interceptors``: those of the gRPC server. ``allowed``: False: no port is offered. ``listen``:
    host:port where callers of other machines are served; one of this machine alone: they are not.

    Services are added as to a :class:`grpc.Server`.
    """

    def __init__(
        self,
        interceptors: Sequence[grpc.ServerInterceptor],
        allowed: bool = True,
        listen: str = f"{HOST}:0",
    ) -> None:
        self._interceptors = interceptors
        self._certificate = active_certificate()
        self._allowed = allowed
        self._listen_at = {True: f"{HOST}:0", False: "" if is_loopback(listen) else listen}  # local or not
        self._handlers: list[grpc.GenericRpcHandler] = []
        self._found: dict[str, grpc.RpcMethodHandler] = {}  # by method
        self._callers: OrderedDict[bytes, DirectCaller] = OrderedDict()  # by key
        self._lock = Lock()
        self._listeners: dict[bool, socket.socket] = {}  # of callers of this machine, of others
        self._connections: set[socket.socket] = set()
        self._strangers = 0  # of the connections
        self._ended = Condition(self._lock)  # a connection has

    def add_generic_rpc_handlers(self, handlers: Iterable[grpc.GenericRpcHandler]) -> None:
        self._handlers += handlers

    def add_registered_method_handlers(self, service: str, handlers: Any) -> None:
        """The same handlers are given as generic ones, too."""

    def offer_port(self, context: grpc.ServicerContext) -> DirectReply:
        """Where the caller's calls may go from now on; port 0: by gRPC."""
        local = is_local_peer(context.peer())
        with self._lock:
            port = self._listen(local)
        if not port:
            return DirectReply()
        caller = DirectCaller(context.peer(), context.auth_context(), tuple(context.invocation_metadata()))
        key = secrets.token_bytes(SECRET_BYTES)
        with self._lock:
            self._callers[key] = caller
            while len(self._callers) > CALLERS:
                self._callers.popitem(last=False)
        return DirectReply(port=port, key=key, proof=caller.proof)

    def stop(self, grace: float) -> None:
        """No new calls; those under way have so many seconds."""
        end = time.monotonic() + grace
        with self._lock:
            self._allowed = False
            listeners = list(self._listeners.values())
            self._listeners.clear()
            for connection in self._connections:
                end_connection(connection, socket.SHUT_RD)  # the next call is the connection's end
        for listener in listeners:
            end_connection(listener)
            listener.close()
        with self._lock:
            while self._connections and time.monotonic() < end:
                self._ended.wait(end - time.monotonic())
            for connection in self._connections:
                end_connection(connection)

    def _listen(self, local: bool) -> int:
        """The port; 0: there is none. The lock is held."""
        if not self._allowed or not self._listen_at[local]:
            return 0
        if local not in self._listeners:
            host, port = split_address(self._listen_at[local])
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            try:
                listener = socket.create_server((host, int(port)), family=family, backlog=CONNECTIONS)
            except OSError as error:
                _log.warning("direct.unavailable", extra={"reason": str(error)})
                self._listen_at[local] = ""
                return 0
            self._listeners[local] = listener
            Thread(target=self._accept, args=(listener, local), name="direct", daemon=True).start()
        return int(self._listeners[local].getsockname()[1])

    def _accept(self, listener: socket.socket, local: bool) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                if self._listeners.get(local) is not listener:
                    return
                time.sleep(0.1)  # too many files are open: who waits has gRPC
                continue
            with self._lock:
                crowded = len(self._connections) >= CONNECTIONS or self._strangers >= STRANGERS
                full = not self._allowed or crowded
                if not full:
                    self._connections.add(connection)
                    self._strangers += 1
            if full:
                connection.close()
            else:
                Thread(target=self._serve, args=(connection, local), name="direct-call", daemon=True).start()

    def _serve(self, accepted: socket.socket, local: bool) -> None:
        connection = accepted
        caller = None
        try:
            with suppress(OSError):
                connection = accepted if local else self._encrypt(accepted)
                caller = self._find_caller(connection)
        finally:
            with self._lock:
                self._strangers -= 1
        try:
            with closing(connection), suppress(OSError, InvalidRequest):
                if caller is not None:
                    self._answer_calls(connection, caller)
        finally:
            with self._lock:
                self._connections.discard(connection)
                self._ended.notify_all()

    def _encrypt(self, accepted: socket.socket) -> socket.socket:
        """As this process encrypts calls by gRPC. Raises :class:`OSError` for a caller without a certificate
        of ours.
        """
        watch_peer(accepted)
        if self._certificate is None:
            return accepted
        accepted.settimeout(KEY_SECONDS)
        try:
            encrypted = self._certificate.current().server_context.wrap_socket(accepted, server_side=True)
        except BaseException:
            with self._lock:
                self._connections.discard(accepted)
            raise
        with self._lock:
            self._connections.discard(accepted)
            self._connections.add(encrypted)
        return encrypted

    def _find_caller(self, connection: socket.socket) -> DirectCaller | None:
        """Who begins like this. Raises :class:`OSError`."""
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        key = receive_secret(connection, KEY_SECONDS)
        with self._lock:
            caller = self._callers.get(key)
        if caller is not None:
            connection.sendall(caller.proof)
        return caller

    def _answer_calls(self, connection: socket.socket, caller: DirectCaller) -> None:
        """Until its end. Raises :class:`OSError`, and what a frame that is none raises."""
        reader = FrameReader(connection)
        while True:
            head, message = reader.read(None)
            call = decode_call(head)
            if not call.more:
                reader.ensure_end()
            messages = RequestMessages(reader, call, message)
            context = DirectContext(caller, call.seconds, connection)
            answer, reply = self._answer(call.method, messages, context, partial(_send, connection))
            messages.drain()
            _send(connection, answer.SerializeToString(), reply)
            if messages.lost:
                return
            reader.ensure_end()

    def _answer(
        self,
        method: str,
        messages: RequestMessages,
        context: DirectContext,
        send: Callable[..., None],
    ) -> tuple[DirectAnswer, bytes]:
        """The last frame; ``send`` has what is before it, whose messages may come in parts. Raises
        :class:`OSError`.
        """
        handler = self._find_handler(OURS + method)
        if handler is None:
            return failed(grpc.StatusCode.UNIMPLEMENTED, f"no method {method[:100]}"), b""
        serialize = handler.response_serializer or bytes
        try:
            if handler.stream_unary is not None:
                return DirectAnswer(), serialize(handler.stream_unary(messages, context))
            with closing(handler.stream_stream(messages, context)) as answers:
                for answer in answers:
                    parts = answer if isinstance(answer, tuple) else (serialize(answer),)
                    send(_MORE, *parts)
            return DirectAnswer(), b""
        except Aborted as ended:
            return ended.answer, b""
        except OSError:
            raise
        except Exception:
            _log.exception("direct.failed", extra={"method": method})
            return failed(grpc.StatusCode.UNKNOWN, f"{method} failed"), b""

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


def _send(connection: socket.socket, head: bytes, *message: Wire) -> None:
    connection.settimeout(frame_seconds(sum(map(len, message))))
    send_frame(connection, head, *message)
