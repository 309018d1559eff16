"""Bare sockets on the simulated network: is a port open, does a server greet, whose address is it."""

from __future__ import annotations

import socket
from typing import Any, Self

from tests.simulation.network import Listener, Network

SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # the frame with which every HTTP/2 server begins


class ProbeSocket:
    """To a listening server, which greets unless its host is paused."""

    def __init__(self, network: Network, listener: Listener, timeout: float) -> None:
        self._network, self._listener, self._timeout = network, listener, timeout

    def sendall(self, data: bytes) -> None:
        """Nobody reads it."""

    def settimeout(self, seconds: float) -> None:
        self._timeout = seconds

    def recv(self, size: int, flags: int = 0) -> bytes:
        scheduler, host = self._network.scheduler, self._listener.host
        task = scheduler.current
        assert task is not None
        answers = host.paused_until <= scheduler.now and self._network.reaches(host, task.host)
        scheduler.sleep(0.001 if answers else self._timeout)
        if not answers:
            raise TimeoutError("timed out")
        return SETTINGS[:size] if host.alive else b""

    def close(self) -> None:
        """Nothing is held open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Socket:
    """:class:`socket.socket` as far as it is used: to ask whether an address is one of this machine's."""

    def __init__(self, network: Network) -> None:
        self._network = network

    def bind(self, address: tuple[str, int]) -> None:
        task = self._network.scheduler.current
        if task is None or address[0] != task.host.address:
            raise OSError(99, "Cannot assign requested address")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is held open."""


def install(network: Network) -> None:
    """From now on sockets are this network's."""

    def connect(address: tuple[str, int], timeout: float = 1.0, **_: Any) -> ProbeSocket:
        task = network.scheduler.current
        assert task is not None
        where = f"{address[0]}:{address[1]}"
        if not network.passes_to(task.host, where):
            network.scheduler.sleep(timeout)
            raise TimeoutError("timed out")
        listener = network.at(where)
        if listener is None:
            network.scheduler.sleep(0.001)
            raise ConnectionRefusedError(111, "Connection refused")
        return ProbeSocket(network, listener, timeout)

    def plain(*_: Any) -> Socket:
        return Socket(network)

    socket.create_connection = connect  # type: ignore[assignment]
    socket.socket = plain  # type: ignore[assignment,misc]
    socket.gethostname = lambda: "simulated"
