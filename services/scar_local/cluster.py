"""The whole cluster as processes on this machine: start, watch, break, repair, stop."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

import grpc

from scar.errors import ConfigError, DeadlineExceeded
from scar.tables import Job
from scar.v1 import checkpoint_pb2, checkpoint_pb2_grpc, detector_pb2_grpc, ps_pb2_grpc, recovery_pb2_grpc
from scar_local import specs
from scar_local.directory import ClusterDirectory, ClusterState
from scar_local.processes import Supervisor
from scar_runtime.jobs import start_job
from scar_runtime.status import Channels, ClusterStatus, Observer, ProcessInfo

START_TIMEOUT = 60.0  # seconds for one group of processes to write their addresses; 1 on an idle machine
WORKER_GRACE = 3.0  # seconds for workers to reach their next clock after SIGTERM
SERVICE_GRACE = 3.0  # seconds for coordinators to finish what they write
FINAL_TIMEOUT = 10.0  # seconds for the last checkpoint round
STATUS_PAUSE = 0.05  # seconds between looks while waiting for a condition


class LocalCluster:
    """A cluster in operating-system processes, so that ``kill -9`` is real. Nothing outlives the process that holds it.

    ``directory``: logs, addresses and (unless ``store`` says otherwise) the store; None: a temporary one, removed at the end.
    ``shards``: how many start. ``coordinators=False``: shards and Redis only. ``redis``: URL of one that runs; None: its own.
    ``respawn``: processes that end come back after ``respawn_delay`` seconds. ``environment``: variables for all processes
    (``{"SCAR_LEASE_SECONDS": "1"}``). ``shard_settings``: settings of shards alone (``{"lease_seconds": 1}``).
    """

    def __init__(
        self,
        directory: Path | str | None = None,
        *,
        shards: int = 4,
        coordinators: bool = True,
        store: str | None = None,
        redis: str | None = None,
        respawn: bool = True,
        respawn_delay: float = 1.0,
        environment: Mapping[str, str] | None = None,
        shard_settings: Mapping[str, object] | None = None,
    ) -> None:
        if shards < 1:
            raise ConfigError(f"a cluster needs at least 1 shard, not {shards}", "Set --shards to 1 or more")
        self._temporary = directory is None
        self._home = ClusterDirectory(Path(directory or tempfile.mkdtemp(prefix="scar-")))
        self._shards, self._coordinators = shards, coordinators
        self._store, self._given_redis, self._redis = store, redis or "", ""
        self._respawn, self._respawn_delay = respawn, respawn_delay
        self._environment = dict(environment or {})
        self._shard_settings = {f"SCAR_{key.upper()}": str(value) for key, value in (shard_settings or {}).items()}
        self._addresses: dict[str, str] = {}
        self._workers: list[str] = []
        self._job = self._label = ""
        self._supervisor: Supervisor | None = None
        self._observer: Observer | None = None
        self._looking = threading.Lock()
        self._channels = Channels()  # of the stubs below; unlike the observer's they stay open to a shard outside the epoch

    def __enter__(self) -> LocalCluster:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None) -> None:
        self.stop(checkpoint=kind is None and all(process.state != "paused" for process in self.processes()))

    # --- life ----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start everything; returns when every service listens. :class:`ConfigError` says why when one cannot."""
        self._home.claim()
        self._label, self._redis, self._job = self._home.new_label(), self._given_redis, ""
        self._addresses, self._workers = {}, []
        try:
            self._supervisor = Supervisor(
                self._home.logs,
                {**specs.machine_variables(), **self._environment},
                respawn=self._respawn,
                delay=self._respawn_delay,
                changed=self._record,
            )
            self._start_redis(self._supervisor)
            self._start_services(self._supervisor)
            self._record()
        except BaseException:
            self._temporary = False  # its logs say why
            self.stop(checkpoint=False)
            raise

    def stop(self, checkpoint: bool = True) -> None:
        """Workers first, then one last round, coordinators, shards, Redis. Safe to call twice.

        ``checkpoint=False``: everything is killed at once; a job can go on from what the store has. Coordinators end before the
        shards, which are simply killed: a detector that still ran would report every shard as a failure, and shards that asked
        to leave would move their blocks to each other for nothing.
        """
        supervisor = self._supervisor
        if supervisor is not None:
            supervisor.stop(self._workers, WORKER_GRACE if checkpoint else 0)
            if checkpoint and self.recovery_address:
                self._last_round()
            supervisor.stop([f"{kind}-0" for kind in specs.COORDINATORS], SERVICE_GRACE if checkpoint else 0)
            supervisor.close()
            self._record()
            self._supervisor = None
        if self._observer is not None:
            self._observer.close()
            self._observer = None
        self._channels.close()
        self._home.release()
        if self._temporary:
            shutil.rmtree(self._home.path, ignore_errors=True)

    def _last_round(self) -> None:
        """Save everything, so that `--resume` loses nothing. The cluster stops all the same when that is not possible."""
        if self.status().epoch is None:
            return
        stub, request = self.checkpoint, checkpoint_pb2.TriggerRequest(selection="full", fraction=1.0)
        with contextlib.suppress(grpc.RpcError):
            stub.Trigger(request, timeout=FINAL_TIMEOUT)

    def _start_redis(self, supervisor: Supervisor) -> None:
        if self._redis:
            return
        for _ in range(3):  # a port that was free a moment ago may be taken when the server binds it
            port = _free_port()
            self._redis = f"redis://{specs.HOST}:{port}/0"
            supervisor.start(specs.redis_server(self._settings, port))
            supervisor.await_started(["redis"], START_TIMEOUT)
            if _answers_ping(supervisor, port):
                return
            supervisor.stop(["redis"], 0)
        raise ConfigError("Redis does not start", f"See {self._home.logs / 'redis.log'}, or pass one that runs: --redis URL")

    def _start_services(self, supervisor: Supervisor) -> None:
        """Each is told the addresses of those before it; what need not wait for each other starts at the same time."""
        if self._coordinators:
            self._begin(supervisor, "recovery")
            self._await(supervisor, "recovery")
            self._begin(supervisor, "detector", "checkpoint")
            self._await(supervisor, "detector")
        shards = [specs.shard(self._settings, number, self._addresses, self._shard_settings) for number in range(self._shards)]
        supervisor.start(*shards)
        if self._coordinators:
            self._await(supervisor, "checkpoint")
        supervisor.await_started([shard.name for shard in shards], START_TIMEOUT)

    def _begin(self, supervisor: Supervisor, *kinds: str) -> None:
        supervisor.start(*(specs.coordinator(self._settings, kind, self._addresses) for kind in kinds))

    def _await(self, supervisor: Supervisor, kind: str) -> None:
        supervisor.await_started([f"{kind}-0"], START_TIMEOUT)
        self._addresses[kind] = supervisor.address(f"{kind}-0")

    # --- work ----------------------------------------------------------------------------------------------------------

    def start_job(self, job: Job, resume: bool = False) -> None:
        """Create the job, or go on with it. Raises :class:`scar.errors.JobExists` and what else the coordinator answers."""
        start_job(self.recovery, job, resume)
        self._job = job.name
        self._record()

    def start_workers(self, train_file: str | Path, count: int) -> list[str]:
        """Start ``count`` more workers that run this file; returns their names."""
        names = [f"worker-{len(self._workers) + number}" for number in range(count)]
        path = Path(train_file).absolute()
        self._workers += names
        self._running.start(*(specs.worker(self._settings, name, path, self._job, self._addresses) for name in names))
        self._running.await_started(names, START_TIMEOUT)
        return names

    def wait(self, timeout: float) -> dict[str, int]:
        """Exit code of every worker by name (0: finished), when all have ended. Raises :class:`DeadlineExceeded`."""
        return self._running.wait(self._workers, timeout)

    def until(self, condition: Callable[[ClusterStatus], bool], timeout: float, what: str = "the condition") -> ClusterStatus:
        """Look until ``condition`` holds. :class:`DeadlineExceeded` after ``timeout`` seconds, with the cluster's problems."""
        deadline = time.monotonic() + timeout
        while not condition(status := self.status()):
            if time.monotonic() > deadline:
                raise DeadlineExceeded(f"waited {timeout:g} s in vain for {what}", "; ".join((*status.problems, *status.waits)))
            time.sleep(STATUS_PAUSE)
        return status

    def status(self, since_clock: int = 0) -> ClusterStatus:
        """One look at all services; those that do not answer are listed in ``problems``."""
        with self._looking:
            return self._look.read(since_clock)

    # --- faults --------------------------------------------------------------------------------------------------------

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL, *, respawn: bool | None = None) -> int:
        """Send a signal (SIGKILL) and return the pid. ``respawn=False``: it stays down until :meth:`restart`."""
        return self._running.signal(name, number, respawn=respawn)

    def pause(self, name: str) -> int:
        """Freeze the process (SIGSTOP): it keeps its connections and answers nothing."""
        return self._running.signal(name, signal.SIGSTOP)

    def resume(self, name: str) -> int:
        return self._running.signal(name, signal.SIGCONT)

    def restart(self, name: str) -> int:
        """Start it again now (killing a living one) and return the new pid, when it listens."""
        self._running.restart(name)
        self._running.await_started([name], START_TIMEOUT)
        return self.pid(name)

    def pid(self, name: str) -> int:
        return next(process.pid for process in self.processes() if process.name == name)

    def processes(self) -> list[ProcessInfo]:
        return self._supervisor.info() if self._supervisor else []

    # --- addresses -------------------------------------------------------------------------------------------------------

    @property
    def directory(self) -> Path:
        return self._home.path

    @property
    def recovery_address(self) -> str:
        return self._addresses.get("recovery", "")

    @property
    def checkpoint_address(self) -> str:
        return self._addresses.get("checkpoint", "")

    @property
    def detector_address(self) -> str:
        return self._addresses.get("detector", "")

    @property
    def redis_url(self) -> str:
        return self._redis

    @property
    def store_url(self) -> str:
        return self._store or f"file://{self._home.path / 'store'}"

    @property
    def recovery(self) -> recovery_pb2_grpc.RecoveryStub:
        return recovery_pb2_grpc.RecoveryStub(self._channels.to(self.recovery_address))

    @property
    def checkpoint(self) -> checkpoint_pb2_grpc.CheckpointStub:
        return checkpoint_pb2_grpc.CheckpointStub(self._channels.to(self.checkpoint_address))

    @property
    def detector(self) -> detector_pb2_grpc.DetectorStub:
        return detector_pb2_grpc.DetectorStub(self._channels.to(self.detector_address))

    def shard(self, name: str) -> ps_pb2_grpc.ShardControlStub:
        """Control stub of a shard process at its present address."""
        return ps_pb2_grpc.ShardControlStub(self._channels.to(self._running.address(name)))

    @property
    def _settings(self) -> specs.Settings:
        return specs.Settings(self._home.path, self._label, self.redis_url, self.store_url, self._environment)

    @property
    def _running(self) -> Supervisor:
        if self._supervisor is None:
            raise ConfigError("the cluster does not run", "Use it inside `with LocalCluster() as cluster:`, or call start()")
        return self._supervisor

    @property
    def _look(self) -> Observer:
        if self._observer is None:
            self._observer = Observer(self.recovery_address, self._addresses)
        return self._observer

    def _record(self) -> None:
        """Write the state file, for `scar status` and its like in other processes."""
        self._home.write(
            ClusterState(
                pid=os.getpid(),
                redis=self.redis_url,
                store=self.store_url,
                job=self._job,
                addresses=dict(self._addresses),
                processes=self.processes(),
                label=self._label,
            )
        )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((specs.HOST, 0))
        return int(probe.getsockname()[1])


def _answers_ping(supervisor: Supervisor, port: int) -> bool:
    """Whether our Redis answers; False when its process has ended, e.g. because the port was taken meanwhile."""
    deadline = time.monotonic() + START_TIMEOUT
    while time.monotonic() < deadline and any(process.name == "redis" and process.alive for process in supervisor.info()):
        with contextlib.suppress(OSError), socket.create_connection((specs.HOST, port), timeout=1.0) as connection:
            connection.sendall(b"PING\r\n")
            if connection.recv(16).startswith(b"+PONG"):
                return True
        time.sleep(0.01)
    return False
