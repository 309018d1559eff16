"""Senders that begin a request and say nothing more, over real gRPC."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from scar import errors
from scar_runtime.process import request_streams, server
from scar_runtime.process.health_board import LIVENESS, HealthBoard, probe_threads
from scar_runtime.process.request_streams import RequestStreams
from scar_runtime.process.server import bind_port, make_server

METHODS = ("Unary", "Stream")
OWN_CONNECTION = [("grpc.use_local_subchannel_pool", 1)]


class Site:
    """A server with a unary method and one that takes a stream; both answer with what they have got."""

    def __init__(self) -> None:
        self.requests = RequestStreams()
        probes = probe_threads()
        self.server = make_server(requests=self.requests, probes=probes)
        HealthBoard((), probes).register(self.server)
        for service, method in (("scar.v1.Test", "Unary"), ("scar.v1.MemberService", "Probe")):
            unary = grpc.unary_unary_rpc_method_handler(lambda request, _: request)
            self._add(service, method, unary)
        stream = grpc.stream_unary_rpc_method_handler(lambda requests, _: b"".join(requests))
        self._add("scar.v1.Stream", "Stream", stream)
        self._add("scar.v1.Refusing", "Stream", grpc.stream_unary_rpc_method_handler(self._refuse))
        self.refused: list[errors.NotServing] = []
        self.address = bind_port(self.server, "127.0.0.1:0")
        self.server.start()
        self.silent = threading.Event()  # until it is set
        self.channels: list[grpc.Channel] = []
        self.calls: list[grpc.Future] = []

    def _add(self, service: str, method: str, handler: Any) -> None:
        generic = grpc.method_handlers_generic_handler(service, {method: handler})
        self.server.add_generic_rpc_handlers((generic,))

    def _refuse(self, requests: Iterator[bytes], _context: grpc.ServicerContext) -> None:
        """Keeps its error, and with that all that its frames refer to."""
        try:
            next(requests)
            raise errors.NotServing("not now")
        except errors.NotServing as error:
            self.refused.append(error)
            raise

    def connect(self) -> grpc.Channel:
        self.channels.append(grpc.insecure_channel(self.address, options=OWN_CONNECTION))
        return self.channels[-1]

    def begin(self, channel: grpc.Channel, method: str, *first: bytes) -> Any:
        """Begin a call whose sender says ``first``, and no more."""

        def messages() -> Iterator[bytes]:
            yield from first
            self.silent.wait(60)

        service = "Test" if method == "Unary" else "Stream"
        call = channel.stream_unary(f"/scar.v1.{service}/{method}").future(messages())
        self.calls.append(call)  # gRPC cancels a call that nobody holds
        return call

    def ask(self, method: str, channel: grpc.Channel | None = None) -> bytes:
        service = {"Unary": "Test", "Stream": "Stream", "Probe": "MemberService"}[method]
        call = (channel or self.connect()).stream_unary(f"/scar.v1.{service}/{method}")
        return bytes(call(iter([b"hello"]), timeout=20))

    def arriving(self, count: int) -> None:
        """Returns when so many requests are waited for."""
        end = time.monotonic() + 20
        while (now := len(self.requests._arriving)) != count:
            assert time.monotonic() < end, f"{now} of {count}"
            time.sleep(0.01)

    def close(self) -> None:
        self.silent.set()
        for channel in self.channels:
            channel.close()
        self.server.stop(0).wait(5)


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.close()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("first", [(), (b"a",)])
def test_silence_ends_with_a_typed_error(
    site: Site, method: str, first: tuple[bytes, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of a call with one message, for which gRPC itself would wait for ever."""
    if method == "Unary" and first:
        assert site.begin(site.connect(), method, *first).result(20) == b"a"  # all that it needs
        return
    call = site.begin(site.connect(), method, *first)
    site.arriving(1)
    site.requests.end_silent()
    assert not call.done(), "it has its time"
    monkeypatch.setattr(request_streams, "SILENT_SECONDS", 0.0)
    while not call.done():  # its first message may be under way still
        site.requests.end_silent()
        time.sleep(0.01)
    error = errors.from_rpc(call.exception(20))
    assert isinstance(error, errors.DeadlineExceeded)
    assert "was silent for" in error.message
    site.arriving(0)


def test_a_request_that_was_refused_is_waited_for_no_longer(site: Site) -> None:
    call = site.connect().stream_unary("/scar.v1.Refusing/Stream")
    with pytest.raises(grpc.RpcError):
        call(iter([b"a", b"b"]), timeout=20)
    assert len(site.refused) == 1
    site.arriving(0)


@pytest.mark.parametrize("method", METHODS)
def test_one_connection_does_not_take_all_threads(
    site: Site, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """80 silent requests: more than there are threads."""
    for least in ("SILENT_SECONDS", "CROWDED_SECONDS"):  # a busy machine takes its time
        monkeypatch.setattr(request_streams, least, 600.0)
    channel = site.connect()
    calls = [site.begin(channel, method) for _ in range(80)]
    site.arriving(server.CONNECTION_STREAMS)
    assert site.ask("Unary") == b"hello"
    assert site.ask("Stream") == b"hello"
    assert not any(call.done() for call in calls)


def test_of_many_connections_the_most_silent_give_way(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """As soon as there are too many of them; who comes is never refused for them."""
    monkeypatch.setattr(request_streams, "CROWDED_SECONDS", 0.0)
    calls = [site.begin(site.connect(), METHODS[number % 2]) for number in range(80)]
    end = time.monotonic() + 30
    while sum(call.done() for call in calls) < len(calls) - request_streams.MOST_SILENT:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert site.ask("Unary") == b"hello"
    assert site.ask("Stream") == b"hello"
    ended = [call for call in calls if call.done()]
    assert {call.code() for call in ended} == {grpc.StatusCode.DEADLINE_EXCEEDED}
    assert len(ended) < len(calls)


def test_a_full_server_answers_the_failure_detector_and_health(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_streams, "MOST_SILENT", 1000)
    for _ in range(80):
        site.begin(site.connect(), "Stream")
    site.arriving(server.WORKERS)
    assert site.ask("Probe") == b"hello"
    stub = health_pb2_grpc.HealthStub(site.connect())
    reply = stub.Check(health_pb2.HealthCheckRequest(service=LIVENESS), timeout=20)
    assert reply.status == health_pb2.HealthCheckResponse.SERVING


def test_more_calls_than_may_wait_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Typed, so that they come again."""
    monkeypatch.setattr(server, "MAX_CALLS", 4)
    site = Site()
    try:
        for _ in range(4):
            site.begin(site.connect(), "Stream")
        site.arriving(4)
        with pytest.raises(grpc.RpcError) as caught:
            site.ask("Unary")
        assert isinstance(errors.from_rpc(caught.value), errors.Busy)
    finally:
        site.close()
