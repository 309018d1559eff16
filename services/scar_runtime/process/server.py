"""gRPC servers with the standard limits: one for everything, and one on which only health is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import grpc
from grpc_reflection.v1alpha import reflection

from scar.errors import ConfigError
from scar.wire.credentials import ProcessCredentials, active_credentials, bind_server
from scar.wire.tracing import server_interceptors
from scar.wire.transport import server_options
from scar_runtime.process.access import CallerCheck, caller_check
from scar_runtime.process.config import variable
from scar_runtime.process.direct_server import DirectServer
from scar_runtime.process.health_board import HEALTH, HealthBoard
from scar_runtime.process.interceptors import Guard
from scar_runtime.process.request_streams import RequestStreams

WORKERS = 64
MAX_CALLS = 1024  # that run or wait for a thread
HEALTH_WORKERS = 2
HEALTH_CALLS = 16
CONNECTION_STREAMS = 32  # calls of one connection: fewer than there are threads, so that none takes all


def make_server(
    workers: int = WORKERS,
    connection_ms: int = 0,
    requests: RequestStreams | None = None,
    probes: ThreadPoolExecutor | None = None,
) -> grpc.Server:
    """A server with nothing in it: threads, limits and the interceptor.

    ``probes``: the threads that answer a failure detector, whatever the others do; None: the same as all.
    ``connection_ms``: see :func:`server_options`.
    """
    return grpc.server(
        ThreadPoolExecutor(max_workers=workers, thread_name_prefix="rpc"),
        options=_limited(connection_ms),
        interceptors=[*server_interceptors(), Guard(_caller_check(), requests, probes)],
        maximum_concurrent_rpcs=MAX_CALLS,
    )


def make_direct_server(requests: RequestStreams, allowed: bool, listen: str, port: int) -> DirectServer:
    """For calls without gRPC, with nothing in it; the same check. ``listen``: as the gRPC server does, on
    another ``port``.
    """
    return DirectServer([Guard(_caller_check(), requests)], allowed, f"{listen.rpartition(':')[0]}:{port}")


def make_health_server(board: HealthBoard) -> grpc.Server:
    """A server with health alone, for those who ask without credentials: a kubelet, a load balancer."""
    server = grpc.server(
        ThreadPoolExecutor(max_workers=HEALTH_WORKERS, thread_name_prefix="health-server"),
        options=_limited(0),
        maximum_concurrent_rpcs=HEALTH_CALLS,
    )
    board.register(server)
    return server


def show_services(server: grpc.Server, names: Sequence[str]) -> None:
    """Let reflection tell of these services."""
    # where strangers are kept out, nobody is told what there is
    if active_credentials() == ProcessCredentials():
        reflection.enable_server_reflection((*names, HEALTH, reflection.SERVICE_NAME), server)


def bind_port(
    server: grpc.Server,
    listen: str,
    setting: str = "listen",
    bind: Callable[[grpc.Server, str], int] = bind_server,
) -> str:
    """Take the port. The address in use, ``host:port``. Raises :class:`ConfigError` when it is taken."""
    try:
        port = bind(server, listen)
    except RuntimeError as error:
        raise ConfigError(
            f"cannot listen on {listen}: {error}", f"Set {variable(setting)} to a free port, or to port 0"
        ) from None
    return f"{listen.rpartition(':')[0]}:{port}"


def _caller_check() -> CallerCheck:
    own = active_credentials()
    return caller_check(own.certificate.identity if own.certificate else None, own.token)


def _limited(connection_ms: int) -> list[tuple[str, int]]:
    return [*server_options(connection_ms), ("grpc.max_concurrent_streams", CONNECTION_STREAMS)]
