"""The metrics port under clients that are silent, slow or many, over real sockets."""

from __future__ import annotations

import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator

import pytest

from scar_runtime.process import metrics_server
from scar_runtime.process.metrics_server import MAX_CONNECTIONS, MAX_PEER_CONNECTIONS, MetricsServer
from tests.component.processes import eventually

Connect = Callable[..., socket.socket]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[MetricsServer]:
    """One that ends no connection before a test says so."""
    monkeypatch.setattr(metrics_server, "CONNECTION_SECONDS", 3600.0)
    server = MetricsServer("127.0.0.1", 0)
    running = threading.Thread(target=server.run)
    running.start()
    yield server
    server.shutdown()
    running.join()
    server.server_close()


@pytest.fixture
def connect(server: MetricsServer) -> Iterator[Connect]:
    opened = []

    def one(source: str = "127.0.0.1") -> socket.socket:
        connection = socket.create_connection(server.server_address[:2], 20, (source, 0))
        connection.setblocking(False)
        opened.append(connection)
        return connection

    yield one
    for connection in opened:
        connection.close()


def is_over(connection: socket.socket) -> bool:
    """Whether the server has ended it, without waiting."""
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def held(connections: list[socket.socket]) -> int:
    return sum(not is_over(one) for one in connections)


def serving_threads(server: MetricsServer) -> int:
    """Threads that serve a connection: each belongs to one that is open."""
    return sum("process_request_thread" in thread.name for thread in threading.enumerate())


def test_eight_hundred_silent_clients_cost_eight_threads_and_not_for_long(
    server: MetricsServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = [connect() for _ in range(800)]
    eventually(lambda: held(silent) == MAX_PEER_CONNECTIONS)
    assert serving_threads(server) <= MAX_PEER_CONNECTIONS
    monkeypatch.setattr(metrics_server, "CONNECTION_SECONDS", 0.0)
    eventually(lambda: held(silent) == 0)
    eventually(lambda: serving_threads(server) == 0)


def test_one_address_does_not_take_all_places(server: MetricsServer, connect: Connect) -> None:
    greedy = [connect("127.0.0.2") for _ in range(2 * MAX_CONNECTIONS)]
    eventually(lambda: held(greedy) <= MAX_PEER_CONNECTIONS)
    with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics", timeout=20) as answer:
        assert b"python_info" in answer.read()


def test_many_addresses_do_not_get_more_than_all_places(connect: Connect) -> None:
    addresses = [f"127.0.0.{last}" for last in range(2, 12)]
    silent = [connect(address) for address in addresses for _ in range(MAX_PEER_CONNECTIONS)]
    eventually(lambda: held(silent) == MAX_CONNECTIONS)


def test_a_client_that_sends_a_byte_now_and_then_is_ended_too(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_server, "CONNECTION_SECONDS", 0.2)
    dripping = connect()

    def is_ended() -> bool:
        time.sleep(0.02)
        try:
            dripping.sendall(b"G")
        except ConnectionError:
            return True
        return is_over(dripping)

    eventually(is_ended)
