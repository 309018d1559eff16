"""The ceiling of any push and pull over gRPC in Python.

The same bytes in the same chunks, or as small a call, without checks, apply or bookkeeping.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import grpc
import numpy as np

from benchmarks import yardsticks
from benchmarks.measure import BenchRow, rate_row, time_pairs
from benchmarks.yardsticks import Bytes
from scar.wire.certificates import TlsIdentity
from scar.wire.codec import CHUNK_BYTES
from scar.wire.transport import channel_options, server_options
from scar_local.authority import role_files
from scar_runtime.process.memory import keep_freed

SIZE = 64 << 20
SERVICE = "bare.Stream"
STREAM = "bare gRPC stream of 64 MiB, up and down"
CLUSTER = "bare"  # which certificates are of
SECONDS = 30.0


def measure_rows(repeat: int) -> list[BenchRow]:
    up = np.ones(SIZE, dtype=np.uint8)
    down = np.ones(SIZE, dtype=np.uint8)
    keep_freed()
    with grpc_peer() as stream, yardsticks.tcp_peer() as peer:
        times = time_pairs(lambda: stream.exchange(up, down), lambda: peer.exchange(up, down), repeat)
    return [rate_row(STREAM, 2 * SIZE / 1e9, times, "GB/s", "plain TCP")]


class GrpcPeer:
    """Client of a process that keeps and sends bytes. ``certificates``: see :func:`grpc_peer`."""

    def __init__(self, port: int, certificates: Path | None = None) -> None:
        address = f"127.0.0.1:{port}"
        if certificates is None:
            self._channel = grpc.insecure_channel(address, options=channel_options())
        else:
            authority, key, chain = _read_pem(certificates, "worker")
            known = (("grpc.ssl_target_name_override", TlsIdentity("shard", CLUSTER).name),)
            self._channel = grpc.secure_channel(
                address,
                grpc.ssl_channel_credentials(authority, key, chain),
                options=[*channel_options(), *known],
            )
        self._push = self._channel.stream_unary(f"/{SERVICE}/Push")
        self._pull = self._channel.unary_stream(f"/{SERVICE}/Pull")
        self._echo = self._channel.unary_unary(f"/{SERVICE}/Echo")

    def exchange(self, up: Bytes, down: Bytes) -> None:
        """Send all of ``up``, then receive into all of ``down``."""
        self._push(_split_chunks(up), timeout=SECONDS)
        at = 0
        for chunk in self._pull(b"", timeout=SECONDS):
            down.data[at : at + len(chunk)] = chunk
            at += len(chunk)

    def echo(self, message: bytes) -> None:
        """One unary call that brings as much as it takes."""
        self._echo(message, timeout=SECONDS)

    def close(self) -> None:
        self._channel.close()


@contextmanager
def grpc_peer(certificates: Path | None = None) -> Iterator[GrpcPeer]:
    """``certificates``: folder of an authority of cluster :data:`CLUSTER`, for TLS on both sides."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve_peer, args=(there, certificates), daemon=True)
    process.start()
    there.close()
    peer = GrpcPeer(int(here.recv()), certificates)
    try:
        yield peer
    finally:
        peer.close()
        here.close()
        process.join(5)
        process.kill()


def _serve_peer(pipe: Connection, certificates: Path | None) -> None:
    keep_freed()
    kept = np.ones(SIZE, dtype=np.uint8)

    def push(chunks: Iterator[bytes], _: grpc.ServicerContext) -> bytes:
        at = 0
        for chunk in chunks:
            kept.data[at : at + len(chunk)] = chunk
            at += len(chunk)
        return b""

    def pull(_: bytes, __: grpc.ServicerContext) -> Iterator[bytes]:
        return _split_chunks(kept)

    def echo(message: bytes, _: grpc.ServicerContext) -> bytes:
        return message

    handlers = {
        "Echo": grpc.unary_unary_rpc_method_handler(echo),
        "Push": grpc.stream_unary_rpc_method_handler(push),
        "Pull": grpc.unary_stream_rpc_method_handler(pull),
    }
    server = grpc.server(ThreadPoolExecutor(4), options=server_options())
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    if certificates is None:
        pipe.send(server.add_insecure_port("127.0.0.1:0"))
    else:
        authority, key, chain = _read_pem(certificates, "shard")
        credentials = grpc.ssl_server_credentials([(key, chain)], authority, require_client_auth=True)
        pipe.send(server.add_secure_port("127.0.0.1:0", credentials))
    server.start()
    try:
        pipe.recv()
    except EOFError:
        server.stop(0)


def _read_pem(certificates: Path, role: str) -> tuple[bytes, bytes, bytes]:
    """The authority, the role's key, and its certificate."""
    files = role_files(certificates, role)
    return files.ca.read_bytes(), files.key.read_bytes(), files.cert.read_bytes()


def _split_chunks(data: Bytes) -> Iterator[bytes]:
    return (bytes(data.data[start : start + CHUNK_BYTES]) for start in range(0, len(data), CHUNK_BYTES))
