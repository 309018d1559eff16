"""Real processes for component tests: a Redis, and services that are killed when the test ends."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from scar.errors import ScarError
from scar_local.redis import HOST, server_command

ROOT = Path(__file__).resolve().parents[2]
DUMMY = str(Path(__file__).with_name("dummy.py"))


def eventually(condition: Callable[[], object], seconds: float = 60.0, what: str = "") -> None:
    """Wait until it is true; what is raised on the way counts as false."""
    end, last = time.monotonic() + seconds, "false"
    while time.monotonic() < end:
        try:
            if condition():
                return
        except (AssertionError, OSError, StopIteration, grpc.RpcError, ScarError) as error:
            last = repr(error)
        time.sleep(0.01)
    raise AssertionError(f"not within {seconds} s: {what or condition}; last: {last}")


@contextmanager
def running_redis(directory: Path) -> Iterator[str]:
    """URL of a Redis of the kind that a local cluster starts."""
    with socket.socket() as free:
        free.bind((HOST, 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(server_command(port, directory), stdout=subprocess.DEVNULL)
    try:
        eventually(lambda: socket.create_connection((HOST, port), 0.2).close() is None)
        yield f"redis://{HOST}:{port}/0"
    finally:
        process.kill()
        process.wait()


class Processes:
    """Starts service processes below a directory; ``close`` kills what still runs."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, *command: str, **variables: str) -> Process:
        address, output, log = (self._directory / f"{name}.{kind}" for kind in ("address", "out", "log"))
        address.unlink(missing_ok=True)
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("SCAR_")},
            "PYTHONPATH": f"{ROOT / 'sdk'}{os.pathsep}{ROOT / 'services'}",
            "SCAR_NAME": name,
            "SCAR_ADDRESS_FILE": str(address),
            "SCAR_LOG_FORMAT": "text",
            **variables,
        }
        with output.open("wb") as out, log.open("wb") as err:
            process = subprocess.Popen([sys.executable, *command], env=environment, stdout=out, stderr=err)
        self._started.append(process)
        return Process(process, address, output, log)

    def close(self) -> None:
        for process in self._started:
            process.kill()
            process.wait()


class Process:
    def __init__(self, process: subprocess.Popen[bytes], address: Path, output: Path, log: Path) -> None:
        self.process = process
        self._address = address
        self._output = output
        self._log = log

    @property
    def address(self) -> str:
        """host:port, as soon as it has bound."""
        eventually(self._address.exists, what=f"{self._address.name}; {self.log}")
        return self._address.read_text()

    @property
    def words(self) -> list[str]:
        return self._output.read_text().split()

    @property
    def log(self) -> str:
        return self._log.read_text()

    def wait(self, seconds: float = 60.0) -> int:
        return self.process.wait(seconds)

    def health(self, service: str = "") -> str:
        with grpc.insecure_channel(self.address) as channel:
            reply = health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(service=service), timeout=5
            )
        return str(health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status))

    def serving(self, service: str = "") -> Process:
        eventually(lambda: self.health(service) == "SERVING", what=self.log)
        return self
