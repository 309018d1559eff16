"""Metrics that every service has; a service adds its own next to its code, with the prefix ``scar_``."""

from __future__ import annotations

import threading
from collections.abc import Callable

from prometheus_client import Gauge, Histogram, Info

from scar.errors import ConfigError
from scar.version import __version__
from scar.wire.certificates import CertificateSource
from scar_runtime.process.config import variable
from scar_runtime.process.metrics_server import MetricsServer

BUILD_INFO = Info("scar_build", "Version of this process and what it is")
RPC_SECONDS = Histogram(
    "scar_rpc_seconds",
    "Duration of answered calls, streams until their end, in seconds",
    ["method", "code"],
    buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
BEATS = Gauge("scar_beat_path", "1 for the path that carried the last heartbeat", ["path"])
IDLE_SECONDS = Gauge("scar_idle_seconds", "Seconds since the working thread last moved")
CERTIFICATE_EXPIRY = Gauge(
    "scar_certificate_expiry_timestamp_seconds",
    "When the certificate in use expires, in seconds since 1970; 0: TLS is off",
)
EPOCH = Gauge("scar_epoch", "Newest epoch that this process has adopted; 0: none")


def serve_metrics(host: str, port: int) -> int:
    """Serve ``/metrics`` on this port (0: any free one). The port in use."""
    try:
        server = MetricsServer(host, port)
    except OSError as error:
        raise ConfigError(
            f"metrics cannot listen on {host}:{port}: {error}",
            f"Set {variable('metrics_port')} to a free port",
        ) from None
    threading.Thread(target=server.run, name="metrics", daemon=True).start()
    return int(server.server_port)


def describe_process(role: str, name: str, idle: Callable[[], float], epoch: Callable[[], int]) -> None:
    """Fill in what does not belong to a single call."""
    BUILD_INFO.info({"version": __version__, "role": role, "member": name})
    IDLE_SECONDS.set_function(idle)
    EPOCH.set_function(epoch)


def describe_certificate(source: CertificateSource) -> None:
    """Say when it expires; after it was renewed, the new one."""
    CERTIFICATE_EXPIRY.set_function(lambda: source.current().expires)
