"""A gRPC server with the standard limits, interceptor, health and reflection."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from scar.errors import ConfigError
from scar.transport import server_options
from scar_runtime.config import variable
from scar_runtime.interceptors import Guard

WORKERS = 64
WATCHERS = 1024  # threads for those who watch health: every client of a coordinator does
LIVENESS = "liveness"  # health name: SERVING while the working thread moves, whatever Redis and the store do
READINESS = "readiness"  # health name: SERVING while this process does its part, which for a coordinator may be to stand by


def make_server(workers: int = WORKERS, connection_ms: int = 0) -> grpc.Server:
    """A server with nothing in it: threads, limits and the interceptor. ``connection_ms``: see :func:`server_options`."""
    pool = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="rpc")
    return grpc.server(pool, options=server_options(connection_ms), interceptors=[Guard()])


def bind(server: grpc.Server, listen: str) -> str:
    """Take the port. The address in use, ``host:port``. Raises :class:`ConfigError` when it is taken."""
    try:
        port = server.add_insecure_port(listen)
    except RuntimeError as error:
        raise ConfigError(
            f"cannot listen on {listen}: {error}", f"Set {variable('listen')} to a free port, or to port 0"
        ) from None
    return f"{listen.rpartition(':')[0]}:{port}"


class HealthBoard:
    """The standard health service. Everything is NOT_SERVING until it is said to be ready, and for good after ``close``."""

    def __init__(self, server: grpc.Server, names: Sequence[str]) -> None:
        self._names = ("", *names)
        # Not its non-blocking way: there it waits, under its lock, for the server's one polling thread to send a change, while
        # that thread waits for the lock to forget a watcher that has gone; then nothing answers any more.
        self._servicer = health.HealthServicer(
            experimental_non_blocking=False, experimental_thread_pool=ThreadPoolExecutor(WATCHERS, "health")
        )
        self.shown: dict[str, bool] = {}
        self.show(ready=False, settled=False, alive=True)
        health_pb2_grpc.add_HealthServicer_to_server(self._servicer, server)
        reflection.enable_server_reflection((*names, health.SERVICE_NAME, reflection.SERVICE_NAME), server)

    def show(self, *, ready: bool, settled: bool, alive: bool) -> None:
        for name, value in [*((name, ready) for name in self._names), (READINESS, settled), (LIVENESS, alive)]:
            if self.shown.get(name) != value:  # watchers hear of changes only
                self.shown[name] = value
                status = health_pb2.HealthCheckResponse
                self._servicer.set(name, status.SERVING if value else status.NOT_SERVING)

    def close(self) -> None:
        self._servicer.enter_graceful_shutdown()
