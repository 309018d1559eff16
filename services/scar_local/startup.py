"""How the processes of a cluster are started: Redis, the coordinators, then the shards.

Each is told the addresses of those before it; what need not wait for each other starts at the same time.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import time
from collections.abc import Iterable, Mapping

from scar.errors import ConfigError, ScarError
from scar_local import specs
from scar_local.directory import ClusterDirectory
from scar_local.processes import Supervisor
from scar_local.redis import HOST, write_password

REDIS_SECONDS = 4.0  # for a Redis of our own to answer
PASSWORD_BYTES = 24
REDIS_TRIES = 3  # a port that was free a moment ago may be taken when the server binds it
START_TIMEOUT = 60.0  # seconds for one group of processes to write their addresses; 1 on an idle machine


def start_redis(supervisor: Supervisor, settings: specs.ProcessSettings) -> str:
    """Start a Redis of our own and wait until it answers; returns its URL. Raises :class:`ConfigError`."""
    deadline = time.monotonic() + REDIS_SECONDS
    for _ in range(REDIS_TRIES):
        port = free_port()
        password = secrets.token_hex(PASSWORD_BYTES)
        write_password(ClusterDirectory(settings.directory).redis_config, password)
        supervisor.start(specs.redis_server(settings, port))
        supervisor.await_started(["redis"], START_TIMEOUT)
        if _answers_ping(supervisor, port, password, deadline):
            return f"redis://:{password}@{HOST}:{port}/0"
        what, where = supervisor.describe_end("redis")
        supervisor.stop(["redis"], 0)
        if time.monotonic() > deadline:
            break
    raise ConfigError(what, f"{where}, or pass a Redis that runs by --redis URL")


class ServiceStart:
    """Starts coordinators and shards.

    ``addresses``: of the coordinators that listen, by kind. ``standby``: two of each kind that has a leader.
    """

    def __init__(self, supervisor: Supervisor, settings: specs.ProcessSettings, standby: bool) -> None:
        self._supervisor = supervisor
        self._settings = settings
        self._standby = standby
        self.addresses: dict[str, str] = {}

    def start_all(self, shards: int, shard_settings: Mapping[str, str]) -> None:
        """Coordinators and shards; returns when all of them listen."""
        self._start_coordinators("recovery")
        self._await_coordinators("recovery")
        self._start_coordinators("detector", "checkpoint")
        self._await_coordinators("detector")
        names = self._start_shards(range(shards), shard_settings)
        self._await_coordinators("checkpoint")
        self._supervisor.await_started(names, START_TIMEOUT)

    def start_shards(self, numbers: Iterable[int], shard_settings: Mapping[str, str]) -> list[str]:
        """Shards alone; returns their names when all of them listen."""
        names = self._start_shards(numbers, shard_settings)
        self._supervisor.await_started(names, START_TIMEOUT)
        return names

    def scale_shards(self, before: int, count: int, shard_settings: Mapping[str, str]) -> None:
        """Have ``count`` of them in place of ``before``: ps-0 to ps-(count - 1); new ones listen afterwards.
        Raises :class:`ConfigError`, :class:`DeadlineExceeded`; then they are as many as before.
        """
        if count < 1:
            raise ConfigError(f"a cluster needs at least 1 shard, not {count}", "Ask for 1 or more")
        try:
            self.start_shards(range(before, count), shard_settings)
        except ScarError:  # so that it can be tried again
            self._retire_shards(range(before, count))
            raise
        self._retire_shards(range(count, before))

    def _retire_shards(self, numbers: Iterable[int]) -> None:
        """Have them hand their blocks over and end by themselves, within their ``leave_seconds``."""
        for number in numbers:
            self._supervisor.retire(f"ps-{number}")

    def _start_shards(self, numbers: Iterable[int], shard_settings: Mapping[str, str]) -> list[str]:
        started = [specs.shard(self._settings, number, self.addresses, shard_settings) for number in numbers]
        self._supervisor.start(*started)
        return [shard.name for shard in started]

    def _start_coordinators(self, *kinds: str) -> None:
        names = [(kind, name) for kind in kinds for name in specs.coordinators(kind, self._standby)]
        started = [specs.coordinator(self._settings, *name, self.addresses) for name in names]
        self._supervisor.start(*started)

    def _await_coordinators(self, kind: str) -> None:
        names = specs.coordinators(kind, self._standby)
        self._supervisor.await_started(names, START_TIMEOUT)
        found = [self._supervisor.address(name) for name in names]
        self.addresses[kind] = found[0] if len(found) == 1 else f"ipv4:{','.join(found)}"


def free_port() -> int:
    """A port that nobody uses at the moment."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _answers_ping(supervisor: Supervisor, port: int, password: str, deadline: float) -> bool:
    """Whether our Redis answers; False when its process has ended, e.g. because the port was taken
    meanwhile.
    """
    wanted = b"+OK\r\n+PONG"
    while (left := deadline - time.monotonic()) > 0 and _is_alive(supervisor, "redis"):
        with contextlib.suppress(OSError), socket.create_connection((HOST, port), timeout=left) as connection:
            connection.sendall(f"AUTH {password}\r\nPING\r\n".encode())
            if connection.recv(len(wanted), socket.MSG_WAITALL) == wanted:
                return True
        time.sleep(0.01)
    return False


def _is_alive(supervisor: Supervisor, name: str) -> bool:
    return any(process.name == name and process.alive for process in supervisor.info())
