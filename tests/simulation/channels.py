"""gRPC's channels on the simulated network: when they connect, to whom calls go, when they fail at once.

To an address: a channel connects at its first call. While it cannot, calls fail at once, unless they wait for
it, and it tries again by itself after its backoff. To the leader behind a name: a connection to every address
of the name; calls go where the health service says SERVING. News of health are looked at when a call needs
them; who is paused or cut off has none, and is believed until its connection breaks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import grpc

from tests.simulation import scheduler
from tests.simulation.calls import Call, CallFuture, SimulatedError, Stream
from tests.simulation.connections import ChannelTiming, ServerConnection
from tests.simulation.network import Network
from tests.simulation.rpc import Server
from tests.simulation.scheduler import Host
from tests.simulation.subchannels import Subchannel

Codec = Callable[[Any], Any]
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
LOOK = 0.1  # seconds between two looks at the health of those who might lead, while a call waits


class Channel:
    """:class:`grpc.Channel` to an address, or to the replica behind a name whose health says it leads."""

    def __init__(self, network: Network, target: str, options: Sequence[tuple[str, Any]] = ()) -> None:
        told = dict(options)
        config = json.loads(told.get("grpc.service_config", "{}"))
        self._network, self._target, self._host = network, target, _here()
        self._service = config.get("healthCheckConfig", {}).get("serviceName", "")
        self._timing = ChannelTiming.of(told)
        self._resolve_every = told.get("grpc.dns_min_time_between_resolutions_ms", 30_000) / 1000
        self._resolved, self._resolving = float("-inf"), False
        self._subchannels: dict[str, Subchannel] = {}
        self._turn = 0
        self._waiting: list[Call] = []
        self._looking = False  # there will be a look at them
        self._closed = False
        self._host.crashed.append(self._crashed)

    def unary_unary(
        self, method: str, request_serializer: Any = None, response_deserializer: Any = None, **_: Any
    ) -> Any:
        return Method(self, method, request_serializer, response_deserializer, many=(False, False))

    def unary_stream(
        self, method: str, request_serializer: Any = None, response_deserializer: Any = None, **_: Any
    ) -> Any:
        return Method(self, method, request_serializer, response_deserializer, many=(False, True))

    def stream_unary(
        self, method: str, request_serializer: Any = None, response_deserializer: Any = None, **_: Any
    ) -> Any:
        return Method(self, method, request_serializer, response_deserializer, many=(True, False))

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._host.crashed.remove(self._crashed)
            for call in self._waiting:
                call.close(grpc.StatusCode.CANCELLED, "Channel closed!")
            for one in self._subchannels.values():
                one.close()

    def _crashed(self) -> None:
        """The kernel closes the connections of a process that has ended."""
        for one in self._subchannels.values():
            one.close("Socket closed")

    def begin(self, method: str, requests: list[bytes], timeout: float | None, waits: bool = False) -> Call:
        """Send a call on its way. Raises ValueError on a closed channel, as gRPC does."""
        if self._closed:
            raise ValueError("Cannot invoke RPC on closed channel!")
        now = self._network.scheduler.now
        call = Call(self._network, self._host, method, requests, None if timeout is None else now + timeout)
        call.waits = waits
        self._network.scheduler.event(self._host, f"call {self._target} {method}")
        self._place(call)
        self._network.scheduler.switch()
        return call

    def _place(self, call: Call) -> None:
        """On a connection, or among those that wait for one; or it fails."""
        connection, error = self._pick_leader() if self._service else self._pick()
        if connection is not None:
            connection.begin(call)
        elif error and not call.waits:
            call.close(UNAVAILABLE, error)
        else:
            self._waiting.append(call)
            if self._service and not self._looking:  # news of health are looked at, they do not come
                self._looking = True
                self._network.scheduler.at(self._network.scheduler.now + LOOK, self._look)

    def _look(self) -> None:
        self._looking = False
        self._changed()

    def _changed(self) -> None:
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            if not call.over:
                self._place(call)

    def _pick(self) -> tuple[ServerConnection | None, str]:
        if not self._subchannels:
            self._add(next(iter(self._network.replicas(self._target)), self._target))
        one = next(iter(self._subchannels.values()))
        one.connect()
        return one.connection, one.error

    def _add(self, address: str) -> None:
        changed = self._changed if not self._service else self._leaders_changed
        self._subchannels[address] = Subchannel(
            self._network, self._host, address, self._timing, changed, self._service
        )

    def _leaders_changed(self) -> None:
        """A name is looked up again when a connection is lost or cannot be made."""
        if not self._closed and self._host.alive:
            if any(one.connection is None and not one.connecting for one in self._subchannels.values()):
                self._resolve()
            self._changed()

    def _resolve(self) -> None:
        now, next_look = self._network.scheduler.now, self._resolved + self._resolve_every
        if now < next_look:
            if not self._resolving:
                self._resolving = True
                self._network.scheduler.at(next_look, self._resolve_late)
            return
        self._resolved = now
        addresses = self._network.replicas(self._target)
        for address in [one for one in self._subchannels if one not in addresses]:
            self._subchannels.pop(address).leave()
        for address in addresses:
            if address not in self._subchannels:
                self._add(address)

    def _resolve_late(self) -> None:
        self._resolving = False
        self._leaders_changed()

    def _pick_leader(self) -> tuple[ServerConnection | None, str]:
        for one in self._subchannels.values():
            one.renew()
        if any(one.connection is None for one in self._subchannels.values()) or not self._subchannels:
            self._resolve()
        known = list(self._subchannels.values())
        for one in known:
            one.connect()
        leaders = [one.connection for one in known if one.connection is not None and one.serves()]
        if leaders:
            self._turn += 1
            return leaders[self._turn % len(leaders)], ""
        if any(one.connecting and not one.error for one in known):
            return None, ""
        return None, next((one.error for one in known if one.error), "no address of it says that it serves")


class Method:
    """A method of a stub. ``many``: whether requests and replies are streams."""

    def __init__(
        self, channel: Channel, name: str, encode: Codec | None, decode: Codec | None, many: tuple[bool, bool]
    ) -> None:
        self._channel, self._name = channel, name
        self._encode, self._decode = encode or _same, decode or _same
        self._requests_stream, self._replies_stream = many

    def __call__(
        self, request: Any, timeout: float | None = None, wait_for_ready: bool | None = None, **_: Any
    ) -> Any:
        call = self._begin(request, timeout, bool(wait_for_ready))
        return Stream(call, self._decoded) if self._replies_stream else self._answer(call)

    def future(
        self, request: Any, timeout: float | None = None, wait_for_ready: bool | None = None, **_: Any
    ) -> CallFuture:
        call = self._begin(request, timeout, bool(wait_for_ready))
        return CallFuture(call, lambda: self._answer(call))

    def _begin(self, request: Any, timeout: float | None, waits: bool) -> Call:
        requests = request if self._requests_stream else [request]
        return self._channel.begin(self._name, [bytes(self._encode(one)) for one in requests], timeout, waits)

    def _answer(self, call: Call) -> Any:
        if not call.await_item():
            raise SimulatedError(grpc.StatusCode.INTERNAL, "no answer")
        return self._decoded(call.items.popleft())

    def _decoded(self, message: bytes) -> Any:
        try:
            return self._decode(message)
        except Exception:
            raise SimulatedError(grpc.StatusCode.INTERNAL, "Exception deserializing response!") from None


def install(network: Network) -> None:
    """From now on channels and servers are made for this network."""
    grpc.insecure_channel = partial(Channel, network)
    grpc.server = partial(Server, network)


def _here() -> Host:
    task = scheduler.active.current
    assert task is not None, "calls are made by tasks"
    return task.host


def _same(value: Any) -> Any:
    return value
