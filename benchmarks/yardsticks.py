"""What nobody can beat by much: a plain socket, a copy of memory, one pass over it, one write of a file."""

from __future__ import annotations

import multiprocessing
import os
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import TimedAction

Bytes = NDArray[np.uint8]
SIZES = struct.Struct("<QQ")
LOOPBACK = "127.0.0.1"


class TcpPeer:
    """Client of a process that swallows and sends bytes over plain TCP; else on this machine."""

    def __init__(self, port: int, host: str = LOOPBACK) -> None:
        self._socket = socket.create_connection((host, port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def exchange(self, up: Bytes, down: Bytes) -> None:
        """Send all of ``up``, then receive into all of ``down``."""
        self._socket.sendall(SIZES.pack(len(up), len(down)))
        self._socket.sendall(up.data)
        _receive_all(self._socket, down.data)

    def close(self) -> None:
        self._socket.close()


@contextmanager
def tcp_peer() -> Iterator[TcpPeer]:
    """A peer in a process of its own."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve_peer, args=(there,), daemon=True)
    process.start()
    there.close()  # so that the death of the process ends recv
    peer = TcpPeer(int(here.recv()))
    try:
        yield peer
    finally:
        peer.close()
        process.join(5)
        process.kill()


def _serve_peer(port: Connection) -> None:
    serve_client(port.send)


def serve_client(tell_port: Callable[[int], object], host: str = LOOPBACK) -> None:
    """Swallow and send what one client asks for, until it has gone."""
    with socket.create_server((host, 0)) as server:
        tell_port(server.getsockname()[1])
        client, _ = server.accept()
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    space = np.ones(1, dtype=np.uint8)
    while header := client.recv(SIZES.size, socket.MSG_WAITALL):
        up, down = SIZES.unpack(header)
        if max(up, down) > len(space):
            space = np.ones(max(up, down), dtype=np.uint8)
        _receive_all(client, space.data[:up])
        client.sendall(space.data[:down])


def _receive_all(source: socket.socket, into: memoryview) -> None:
    while len(into):
        count = source.recv_into(into)
        if not count:
            raise EOFError("the other side is gone")
        into = into[count:]


def copy_memory(size: int) -> TimedAction:
    """Copies ``size`` bytes of memory."""
    source = np.ones(size, dtype=np.uint8)
    target = np.zeros(size, dtype=np.uint8)
    return lambda: np.copyto(target, source)


def one_pass(*arrays: NDArray[Any]) -> TimedAction:
    """Reads each array once."""
    return lambda: [array.sum() for array in arrays]


def write_durable(path: Path, data: Bytes) -> None:
    """One file, durable."""
    with path.open("wb") as file:
        file.write(data.data)
        file.flush()
        os.fsync(file.fileno())


def own_address() -> str:
    """Of this machine, other than loopback. Raises OSError if it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing
        return str(probe.getsockname()[0])
