"""The health service under clients that watch it, as every client of a coordinator does."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from scar_runtime.process import health_board
from scar_runtime.process.health_board import READINESS, HealthBoard, probe_threads
from scar_runtime.process.server import bind_port, make_health_server, make_server

NAME = "some.Service"
OWN_CONNECTION = [("grpc.use_local_subchannel_pool", 1)]
Status = health_pb2.HealthCheckResponse


@pytest.fixture
def served() -> Iterator[tuple[str, HealthBoard]]:
    server = make_server()
    board = HealthBoard((NAME,), probe_threads())
    board.register(server)
    address = bind_port(server, "127.0.0.1:0")
    server.start()
    yield address, board
    board.close()
    server.stop(0).wait(5)


def watch(address: str, end: float) -> None:
    """Clients that come, hear a word or two, and go."""
    request = health_pb2.HealthCheckRequest(service="some.Service")
    while time.monotonic() < end:
        with grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            stream = health_pb2_grpc.HealthStub(channel).Watch(request, timeout=20)
            next(stream)


def test_watchers_that_go_do_not_stop_the_server(served: tuple[str, HealthBoard]) -> None:
    address, board = served
    end = time.monotonic() + 3
    with ThreadPoolExecutor(8) as clients:
        watching = [clients.submit(watch, address, end) for _ in range(8)]
        while time.monotonic() < end:
            ready = not board.shown["some.Service"]
            turning = threading.Thread(
                target=board.show, kwargs={"ready": ready, "settled": True, "alive": True}, daemon=True
            )
            turning.start()
            turning.join(60)
            assert not turning.is_alive()
        for future in watching:
            future.result(timeout=60)
    with grpc.insecure_channel(address) as channel:
        reply = health_pb2_grpc.HealthStub(channel).Check(
            health_pb2.HealthCheckRequest(service=READINESS), timeout=20
        )
    assert reply.status == health_pb2.HealthCheckResponse.SERVING


def watches(address: str, connections: int, each: int = 1) -> Iterator[grpc.Call]:
    request = health_pb2.HealthCheckRequest(service=NAME)
    for _ in range(connections):
        stub = health_pb2_grpc.HealthStub(grpc.insecure_channel(address, options=OWN_CONNECTION))
        for _ in range(each):
            yield stub.Watch(request, timeout=60)


def check(address: str) -> int:
    with grpc.insecure_channel(address, options=OWN_CONNECTION) as channel:
        request = health_pb2.HealthCheckRequest(service=NAME)
        return int(health_pb2_grpc.HealthStub(channel).Check(request, timeout=20).status)


def server_threads() -> int:
    """Of all servers of this process."""
    return sum(thread.name.startswith(("probe", "rpc")) for thread in threading.enumerate())


def test_who_watches_holds_no_thread(served: tuple[str, HealthBoard]) -> None:
    """And hears of every change that lasts."""
    address, board = served
    before = server_threads()
    streams = list(watches(address, 150))
    assert {next(stream).status for stream in streams} == {Status.NOT_SERVING}
    assert server_threads() - before <= health_board.SENDERS
    board.show(ready=True, settled=True, alive=True)
    assert {next(stream).status for stream in streams} == {Status.SERVING}
    board.close()
    board.show(ready=True, settled=True, alive=True)
    assert {next(stream).status for stream in streams} == {Status.NOT_SERVING}
    assert check(address) == Status.NOT_SERVING
    for stream in streams:
        stream.cancel()


def test_one_connection_may_watch_only_so_often(served: tuple[str, HealthBoard]) -> None:
    address, _ = served
    streams = list(watches(address, 1, health_board.CONNECTION_WATCHES + 1))
    heard = []
    for stream in streams:
        try:
            heard.append(next(stream).status)
        except grpc.RpcError as error:
            heard.append(error.code())
    assert heard.count(Status.NOT_SERVING) == health_board.CONNECTION_WATCHES
    assert heard.count(grpc.StatusCode.RESOURCE_EXHAUSTED) == 1
    streams += (other := list(watches(address, 1)))
    assert next(other[0]).status == Status.NOT_SERVING
    for stream in streams:
        stream.cancel()


class Deaf:
    """A client that takes nothing: what is sent to it waits until its call is cancelled."""

    def __init__(self) -> None:
        self.sends = 0
        self.cancelled = threading.Event()

    def cancel(self) -> None:
        self.cancelled.set()

    def peer(self) -> str:
        return "ipv4:10.0.0.1:4711"

    def add_callback(self, _callback: object) -> bool:
        return True

    def send(self, _status: object) -> None:
        self.sends += 1
        self.cancelled.wait(30)


def test_who_does_not_listen_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    board, deaf = HealthBoard((NAME,), probe_threads()), Deaf()
    request = health_pb2.HealthCheckRequest(service=NAME)
    watching = threading.Thread(target=board.watch, args=(request, deaf, deaf.send))
    watching.start()
    while not deaf.sends:
        time.sleep(0.01)
    board.drop_deaf()
    assert not deaf.cancelled.is_set(), "it has its time"
    for ready in (True, False) * 20:  # no further thread waits for it
        board.show(ready=ready, settled=True, alive=True)
    monkeypatch.setattr(health_board, "SEND_SECONDS", 0.0)
    board.drop_deaf()
    assert deaf.cancelled.is_set()
    watching.join(60)
    assert not watching.is_alive()
    assert deaf.sends == 1


def test_health_has_a_server_of_its_own() -> None:
    board = HealthBoard((NAME,), probe_threads())
    server = make_health_server(board)
    address = bind_port(server, "127.0.0.1:0")
    server.start()
    board.show(ready=True, settled=True, alive=True)
    assert check(address) == Status.SERVING
    server.stop(0).wait(5)
