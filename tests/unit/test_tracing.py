"""Who asks for no traces pays for none."""

from __future__ import annotations

import subprocess
import sys

import grpc
import pytest

from scar.errors import ConfigError
from scar.wire import tracing
from scar.wire.interception import intercepted
from scar_runtime.process.config import ServiceSettings

OFF = """
import sys
import scar
assert scar.join
import scar_checkpoint.service, scar_detector.service, scar_ps.service
import scar_recovery.service, scar_worker.service
from scar_runtime.process.server import make_server
from scar.wire.transport import open_channel
make_server()
channel = open_channel("127.0.0.1:1")
assert type(channel).__module__ == "grpc._channel", type(channel)
ours = ("opentelemetry.exporter", "scar.wire.otel")  # Redis' client imports the rest where it is
assert not [name for name in sys.modules if name.startswith(ours)]
"""


def test_without_them_nothing_is_imported_and_no_call_is_wrapped() -> None:
    done = subprocess.run([sys.executable, "-c", OFF], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_without_them_there_is_nothing_between_a_call_and_its_connection() -> None:
    tracing.start_tracing("", "shard", "ps-0", "a" * 12)
    channel = grpc.insecure_channel("127.0.0.1:1")
    assert intercepted(channel) is channel
    assert tracing.server_interceptors() == []
    assert tracing.trace_span("a", ("epoch", 1)) is tracing.join_operation(("round", 1)), "nothing is made"
    channel.close()


def test_without_the_package_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scar.wire.otel", None)
    with pytest.raises(ConfigError, match=r"scar-ps\[otel\]"):
        tracing.start_tracing("http://127.0.0.1:4317", "shard", "ps-0", "a" * 12)


def test_a_receiver_is_a_url() -> None:
    with pytest.raises(ValueError, match="traces"):
        ServiceSettings(name="a", traces="collector:4317")
