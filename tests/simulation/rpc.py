"""gRPC's servers on the simulated network, with the real interceptors, codecs and pools."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace
from typing import Any

import grpc
from grpc_health.v1 import health_pb2

from tests.simulation import scheduler
from tests.simulation.calls import Call, Flag, SimulatedError
from tests.simulation.connections import ServerConnection
from tests.simulation.network import Network

HEALTH = "/grpc.health.v1.Health/Check"
SERVING = health_pb2.HealthCheckResponse.SERVING
NEVER_MS = 2**31 - 1
NO_CONTEXT = SimpleNamespace(set_code=lambda code: None)


class Server:
    """:class:`grpc.Server`. A call is a task of its own; as many run at once as the pool has threads.

    ``connection_age``: seconds after which a connection is renewed.
    """

    def __init__(
        self,
        network: Network,
        pool: ThreadPoolExecutor,
        options: Sequence[tuple[str, Any]] = (),
        interceptors: Sequence[grpc.ServerInterceptor] = (),
        maximum_concurrent_rpcs: int | None = None,
    ) -> None:
        task = scheduler.active.current
        assert task is not None, "servers belong to tasks"
        self.host, self.listening = task.host, False
        self.connections: dict[ServerConnection, None] = {}
        self.connection_age = dict(options).get("grpc.max_connection_age_ms", NEVER_MS) / 1000
        self._network, self._threads, self._interceptors = network, pool._max_workers, interceptors
        self._handlers: list[grpc.GenericRpcHandler] = []
        self._known: dict[str, grpc.RpcMethodHandler | None] = {}
        self._waiting: deque[Call] = deque()
        self._running = 0
        self._stopped: Flag | None = None
        self.host.crashed.append(self._crashed)

    def add_generic_rpc_handlers(self, handlers: Iterable[grpc.GenericRpcHandler]) -> None:
        self._handlers += handlers

    def add_registered_method_handlers(self, service: str, handlers: Any) -> None:
        """The same handlers are given as generic ones, too."""

    def add_insecure_port(self, address: str) -> int:
        return self._network.bind(self, address)

    def start(self) -> None:
        self.listening = True

    def stop(self, grace: float | None) -> Flag:
        """New calls are refused. Calls under way may end within ``grace`` seconds; then they are cut off."""
        self.listening = False
        if self._stopped is None:
            self._stopped = Flag(self._network.scheduler)
            self._network.scheduler.at(self._network.scheduler.now + (grace or 0.0), self._cut_off)
        self._look_stopped()
        return self._stopped

    def _look_stopped(self) -> None:
        if self._stopped is not None and not self._running and not self._waiting:
            self._hang_up("GOAWAY received")
            self._stopped.set()

    def _cut_off(self) -> None:
        for connection in self.connections:
            for call in list(connection.served):
                call.finish(grpc.StatusCode.UNAVAILABLE, "Cancelling all calls")
        self._waiting.clear()
        self._hang_up("GOAWAY received")
        if self._stopped is not None:
            self._stopped.set()

    def _crashed(self) -> None:
        """The kernel closes the connections of a process that has ended."""
        self.listening = False
        self._hang_up("Stream removed (Socket closed)")

    def _hang_up(self, details: str) -> None:
        for connection in list(self.connections):
            connection.hang_up(details)

    def reset_connections(self) -> None:
        """As when a firewall has forgotten them: both ends hear of it."""
        for connection in list(self.connections):
            connection.fail("recvmsg:Connection reset by peer")
            connection.forget()

    def incoming(self, call: Call) -> None:
        """A call has arrived."""
        call.server = self.host
        self._waiting.append(call)
        self._admit()

    def _admit(self) -> None:
        while self._waiting and self._running < self._threads:
            call = self._waiting.popleft()
            self._running += 1
            name = call.method.rpartition("/")[2]
            self._network.scheduler.spawn(self.host, name, partial(self._handle, call))

    def _handle(self, call: Call) -> None:
        try:
            if call.context.active:
                self._answer(call)
        except SimulatedError as error:
            call.finish(error.code(), error.details(), error.trailing_metadata())
        except Exception as error:
            call.finish(grpc.StatusCode.UNKNOWN, f"Exception calling application: {error}")
        finally:
            if call.connection is not None:
                call.connection.served.pop(call, None)
            self._running -= 1
            self._admit()
            self._look_stopped()

    def _answer(self, call: Call) -> None:
        handler = self.handler(call.method)
        if handler is None:
            raise SimulatedError(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
        decode = partial(_decoded, handler.request_deserializer or _same)
        encode = handler.response_serializer or _same
        requests = map(decode, call.arriving())
        behavior = next(
            b
            for b in (handler.unary_unary, handler.unary_stream, handler.stream_unary, handler.stream_stream)
            if b
        )
        answer = behavior(requests if handler.request_streaming else next(requests), call.context)
        if handler.response_streaming:
            self._stream(call, answer, encode)
        else:
            call.reply(bytes(encode(answer)))
        call.finish(grpc.StatusCode.OK)

    @staticmethod
    def _stream(call: Call, messages: Any, encode: Callable[[Any], Any]) -> None:
        for message in messages:
            scheduler.active.switch()
            if not call.context.active:
                messages.close()
                return
            call.reply(bytes(encode(message)))

    def handler(self, method: str) -> grpc.RpcMethodHandler | None:
        if method not in self._known:
            details = SimpleNamespace(method=method, invocation_metadata=())
            find = self._find
            for interceptor in reversed(self._interceptors):
                find = partial(interceptor.intercept_service, find)
            self._known[method] = find(details)
        return self._known[method]

    def _find(self, details: Any) -> grpc.RpcMethodHandler | None:
        found = (handlers.service(details) for handlers in self._handlers)
        return next((handler for handler in found if handler is not None), None)

    def serves(self, service: str) -> bool:
        """What its health service says."""
        handler = self.handler(HEALTH)
        if handler is None or not self.listening:
            return False
        request = health_pb2.HealthCheckRequest(service=service)
        return bool(handler.unary_unary(request, NO_CONTEXT).status == SERVING)


def _decoded(decode: Callable[[bytes], Any], message: bytes) -> Any:
    try:
        return decode(message)
    except Exception:
        raise SimulatedError(grpc.StatusCode.INTERNAL, "Exception deserializing request!") from None


def _same(value: Any) -> Any:
    return value
