"""The whole cluster as processes on this machine: start, watch, break, repair, stop."""

from __future__ import annotations

import math
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from scar.errors import ConfigError
from scar.job_start import start_job
from scar.tables import Job
from scar.training import Worker
from scar_admin.observer import ClusterObserver
from scar_admin.polling import await_status
from scar_admin.status import ClusterStatus, ProcessInfo
from scar_local import preflight, specs
from scar_local.cluster_operator import become_operator, resign_operator
from scar_local.cuts import cut_folder
from scar_local.directory import ClusterDirectory, ClusterState
from scar_local.endpoints import ServiceEndpoints
from scar_local.function_source import function_source
from scar_local.function_training import Callbacks, FunctionTraining, TrainingResult, Watch, nobody_trains
from scar_local.private_files import ensure_key
from scar_local.processes import Supervisor
from scar_local.startup import START_TIMEOUT, ServiceStart, start_redis
from scar_local.wanted_shards import ShardScaler, WantedShardsFile
from scar_runtime.store.signatures import key_beside

WORKER_GRACE = 3.0  # seconds for workers to reach their next clock after SIGTERM
SERVICE_GRACE = 3.0  # seconds for coordinators to finish what they write
FINAL_TIMEOUT = 10.0  # seconds for the last checkpoint round


class LocalCluster:
    """A cluster in operating-system processes, so that ``kill -9`` is real. Nothing outlives the process that
    holds it.

    ``directory``: logs, addresses and (unless ``store`` says otherwise) the store; None: a temporary one,
    removed at the end. ``shards``: how many start. ``coordinators=False``: shards and Redis only. ``redis``:
    URL of one that runs; None: its own. ``respawn``: processes that end come back after ``respawn_delay``
    seconds. ``environment``: variables for all processes (``{"SCAR_LEASE_SECONDS": "1"}``).
    ``shard_settings``: settings of shards alone (``{"lease_seconds": 1}``). ``standby``: a second recovery
    and a second checkpoint coordinator, which lead when the first ones do not. ``tls``: all know each other
    by certificates; else by a token. Both are made at each start; meanwhile this process is the cluster's
    operator. ``redis_proxy``: host:port through which the processes reach Redis.
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
        standby: bool = False,
        tls: bool = False,
        redis_proxy: str = "",
    ) -> None:
        if shards < 1:
            raise ConfigError(f"a cluster needs at least 1 shard, not {shards}", "Set --shards to 1 or more")
        self._temporary = directory is None
        self._home = ClusterDirectory(Path(directory or tempfile.mkdtemp(prefix="scar-")))
        self._shards = shards
        self._coordinators = coordinators
        self._standby = standby
        self._tls = tls
        self._store = store
        self._given_redis = redis or ""
        self._redis = ""
        self._redis_proxy = redis_proxy
        self._respawn = respawn
        self._respawn_delay = respawn_delay
        self._environment = dict(environment or {})
        self._shard_settings = specs.as_variables(shard_settings or {})
        self._workers: list[str] = []
        self._job = self._label = ""
        self._supervisor: Supervisor | None = None
        self._observer: ClusterObserver | None = None
        self._looking = threading.Lock()
        self._scaling = threading.Lock()
        self._scaler = ShardScaler(WantedShardsFile(self._home.path), self.scale_shards)
        self.endpoints = ServiceEndpoints(standby, self.address)

    def __enter__(self) -> LocalCluster:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.stop(checkpoint=kind is None and all(process.answers for process in self.processes()))

    # --- life

    def start(self) -> None:
        """Start everything; returns when every service listens. Raises :class:`ConfigError`."""
        self._home.claim()
        self._label = self._home.new_label()
        self._redis = self._given_redis
        self._job = ""
        self.endpoints.addresses = {}
        self._workers = []
        try:
            preflight.check_machine(self.store_url, self._given_redis)
            become_operator(self._home, self._tls)
            if not self._store:
                ensure_key(self._home.path / "store.key")
            self._supervisor = Supervisor(
                self._home.logs,
                {**specs.machine_variables(), **self._environment},
                respawn=self._respawn,
                delay=self._respawn_delay,
                changed=self._write_state,
                cuts=cut_folder(self._home.path),
            )
            self._redis = self._given_redis or start_redis(self._supervisor, self._process_settings)
            self._start_services(self._supervisor)
            self._scaler.start()
            self._write_state()
        except BaseException as error:
            self._temporary = False  # its logs say why
            self.stop(checkpoint=False)
            if isinstance(error, OSError):
                raise ConfigError(
                    f"the cluster cannot start: {error}", f"Repair {self._home.path}"
                ) from error
            raise

    def stop(self, checkpoint: bool = True) -> None:
        """Workers first, then one last round, coordinators, shards, Redis. Safe to call twice.

        ``checkpoint=False``: everything is killed at once; a job can go on from what the store has.
        Coordinators end before the shards, which are simply killed: a detector that still ran would report
        every shard as a failure, and shards that asked to leave would move their blocks to each other for
        nothing.
        """
        self._scaler.close()
        supervisor = self._supervisor
        if supervisor is not None:
            supervisor.stop(self._workers, WORKER_GRACE if checkpoint else 0)
            if checkpoint and self.endpoints.recovery_address:
                self._last_round()
            names = [name for kind in specs.COORDINATORS for name in specs.coordinators(kind, self._standby)]
            supervisor.stop(names, SERVICE_GRACE if checkpoint else 0)
            supervisor.close()
            self._write_state()
            self._supervisor = None
        if self._observer is not None:
            self._observer.close()
            self._observer = None
        self.endpoints.close()
        resign_operator(self._home)
        self._home.release()
        if self._temporary:
            shutil.rmtree(self._home.path, ignore_errors=True)

    def _last_round(self) -> None:
        """So that `--resume` loses nothing."""
        status = self.status()
        if status.epoch is not None and status.finished is None:
            self.endpoints.save_all(FINAL_TIMEOUT)

    def _start_services(self, supervisor: Supervisor) -> None:
        start = ServiceStart(supervisor, self._process_settings, self._standby)
        self.endpoints.addresses = start.addresses
        if self._coordinators:
            start.start_all(self._shards, self._shard_settings)
        else:
            start.start_shards(range(self._shards), self._shard_settings)

    # --- work

    def start_job(self, job: Job, resume: bool = False, **how: Any) -> str:
        """Create the job, or go on with it; returns what it has otherwise than before, in words.

        Raises what the coordinator answers. ``how``: see :func:`scar.job_start.start_job`.
        """
        changes = start_job(self.endpoints.recovery, job, resume, **how)
        self._job = job.name
        self._write_state()
        return changes

    def train(
        self,
        job: Job,
        function: Callable[[Worker], object],
        *,
        resume: bool = False,
        timeout: float = math.inf,
        watch: Watch | None = None,
        callbacks: Callbacks = (),
    ) -> TrainingResult:
        """Train ``job`` on all shards by a function of this program; returns when the model is saved.

        Workers are other processes: they get its source (:mod:`scar_local.function_source`). ``timeout``:
        seconds. ``watch`` gets each look at the cluster, ``callbacks`` the numbers (:mod:`scar.callbacks`);
        what they raise ends it. Raises :class:`ConfigError` for a function that cannot be sent, and
        :class:`scar.errors.TrainingFailed` with the traceback of one that has raised. Its workers are gone
        then in any case, and ``resume`` goes on with what is saved.
        """
        source = function_source(function)
        self.until(nobody_trains, START_TIMEOUT, "the workers of the last training to be gone")
        self.start_job(replace(job, shards=self._shards), resume)
        file = source.write_to(self.directory / "function")
        try:
            workers = self.start_workers(file, job.workers, function=source.name)
            return FunctionTraining(self, source, file, workers).await_result(timeout, watch, callbacks)
        finally:
            self._running_supervisor.stop(self._workers, WORKER_GRACE)
            self._workers = []

    def start_workers(
        self, train_file: str | Path, count: int, arguments: Sequence[str] = (), function: str = "train"
    ) -> list[str]:
        """Start ``count`` more workers that run this file's ``function``; returns their names."""
        names = [f"worker-{len(self._workers) + number}" for number in range(count)]
        file = specs.TrainFile(Path(train_file).absolute(), tuple(arguments), function)
        self._workers += names
        addresses = self.endpoints.addresses
        self._running_supervisor.start(
            *(specs.worker(self._process_settings, name, file, self._job, addresses) for name in names)
        )
        self._running_supervisor.await_started(names, START_TIMEOUT)
        return names

    def scale_shards(self, count: int) -> None:
        """Have ``count`` shards, also while a job trains: new ones, to which blocks move, listen afterwards;
        those that are too many, the last ones, hand theirs over and end. Raises :class:`ConfigError`.
        """
        with self._scaling:
            start = ServiceStart(self._running_supervisor, self._process_settings, self._standby)
            start.addresses = dict(self.endpoints.addresses)
            start.scale_shards(self._shards, count, self._shard_settings)
            self._shards = count

    def wait(self, timeout: float) -> dict[str, int]:
        """Exit code of every worker by name (0: finished), when all have ended. Raises
        :class:`DeadlineExceeded`.
        """
        return self._running_supervisor.wait(self._workers, timeout)

    def until(
        self, condition: Callable[[ClusterStatus], bool], timeout: float, what: str = "the condition"
    ) -> ClusterStatus:
        """Look until ``condition`` holds. :class:`DeadlineExceeded` after ``timeout`` seconds, with the
        cluster's problems.
        """
        return await_status(self.status, condition, what, timeout)

    def status(self, since_clock: int = 0) -> ClusterStatus:
        """One look at all services; those that do not answer are listed in ``problems``."""
        with self._looking:
            return self._status_observer.read(since_clock)

    # --- faults

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL, *, respawn: bool | None = None) -> int:
        """Send a signal and return the pid. ``respawn=False``: it stays down until :meth:`restart`."""
        return self._running_supervisor.signal(name, number, respawn=respawn)

    def pause(self, name: str) -> int:
        """Freeze the process (SIGSTOP): it keeps its connections and answers nothing."""
        return self._running_supervisor.signal(name, signal.SIGSTOP)

    def resume(self, name: str) -> int:
        return self._running_supervisor.signal(name, signal.SIGCONT)

    def restart(self, name: str) -> int:
        """Start it again now (killing a living one) and return the new pid, when it listens."""
        self._running_supervisor.restart(name)
        self._running_supervisor.await_started([name], START_TIMEOUT)
        return self.pid(name)

    def pid(self, name: str) -> int:
        return next(process.pid for process in self.processes() if process.name == name)

    def address(self, name: str) -> str:
        return self._running_supervisor.address(name)  # host:port

    def processes(self) -> list[ProcessInfo]:
        return self._supervisor.info() if self._supervisor else []

    # --- addresses

    @property
    def directory(self) -> Path:
        return self._home.path

    @property
    def redis_url(self) -> str:
        return self._redis

    @property
    def store_url(self) -> str:
        return self._store or f"file://{self._home.path / 'store'}"

    @property
    def _process_settings(self) -> specs.ProcessSettings:
        return specs.ProcessSettings(
            self._home.path,
            self._label,
            specs.through_proxy(self.redis_url, self._redis_proxy),
            self.store_url,
            self._environment,
            self._home.certificates if self._tls else None,
            key_beside(self.store_url),
        )

    @property
    def _running_supervisor(self) -> Supervisor:
        if self._supervisor is None:
            raise ConfigError(
                "the cluster does not run", "Use it inside `with LocalCluster() as cluster:`, or call start()"
            )
        return self._supervisor

    @property
    def _status_observer(self) -> ClusterObserver:
        if self._observer is None:
            self._observer = ClusterObserver(self.endpoints.recovery_address, self.endpoints.addresses)
        return self._observer

    def _write_state(self) -> None:
        """Write the state file, for `scar status` and its like in other processes."""
        self._home.write(
            ClusterState(
                pid=os.getpid(),
                redis=self.redis_url,
                store=self.store_url,
                job=self._job,
                addresses=dict(self.endpoints.addresses),
                processes=self.processes(),
                label=self._label,
                tls=self._tls,
                cut_problem=self._supervisor.cuts.problem if self._supervisor else "",
            )
        )
