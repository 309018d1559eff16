"""The health service under clients that watch it, as every client of a coordinator does."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from scar_runtime.server import READINESS, HealthBoard, bind, make_server


@pytest.fixture
def served() -> Iterator[tuple[str, HealthBoard]]:
    server = make_server()
    board = HealthBoard(server, ("some.Service",))
    address = bind(server, "127.0.0.1:0")
    server.start()
    yield address, board
    board.close()
    server.stop(0).wait(5)


def watch(address: str, end: float) -> None:
    """Clients that come, hear a word or two, and go."""
    request = health_pb2.HealthCheckRequest(service="some.Service")
    while time.monotonic() < end:
        with grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            stream = health_pb2_grpc.HealthStub(channel).Watch(request, timeout=1)
            next(stream)


def test_watchers_that_go_do_not_stop_the_server(served: tuple[str, HealthBoard]) -> None:
    address, board = served
    end = time.monotonic() + 3
    with ThreadPoolExecutor(8) as clients:
        watching = [clients.submit(watch, address, end) for _ in range(8)]
        while time.monotonic() < end:
            ready = not board.shown["some.Service"]
            turning = threading.Thread(target=board.show, kwargs={"ready": ready, "settled": True, "alive": True}, daemon=True)
            turning.start()
            turning.join(5)
            assert not turning.is_alive()
        for future in watching:
            future.result(timeout=10)
    with grpc.insecure_channel(address) as channel:
        reply = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=READINESS), timeout=5)
    assert reply.status == health_pb2.HealthCheckResponse.SERVING


def test_more_may_watch_than_may_call(served: tuple[str, HealthBoard]) -> None:
    """A watcher must not take a thread away from those who want an answer."""
    address, _ = served
    request = health_pb2.HealthCheckRequest(service="some.Service")
    with grpc.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        streams = [stub.Watch(request, timeout=30) for _ in range(100)]
        assert {next(stream).status for stream in streams} == {health_pb2.HealthCheckResponse.NOT_SERVING}
        assert stub.Check(request, timeout=5).status == health_pb2.HealthCheckResponse.NOT_SERVING
        for stream in streams:
            stream.cancel()
