"""Starting a job on a cluster, and workers for it in processes of one's own."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType

import grpc

from scar.codec import job_arrays, job_to_proto
from scar.errors import Temporary, from_rpc
from scar.tables import Job
from scar.v1 import recovery_pb2, recovery_pb2_grpc
from scar_local import specs
from scar_local.directory import ClusterDirectory, ClusterState
from scar_local.processes import ProcessInfo, Supervisor

START_JOB_TIMEOUT = 20.0  # seconds, with retries while the coordinator or the store is not ready
RETRY_PAUSE = 0.1  # seconds
WORKER_GRACE = 3.0  # seconds for workers to reach their next clock after SIGTERM


def start_job(recovery: recovery_pb2_grpc.RecoveryStub, job: Job, resume: bool, timeout: float = START_JOB_TIMEOUT) -> None:
    """Create the job, or go on with it. Retries what is temporary; raises every other :class:`scar.errors.ScarError`."""
    deadline = time.monotonic() + timeout
    request = recovery_pb2.StartJobRequest(job=job_to_proto(job), resume=resume, given=dict(job_arrays(job)))
    while True:
        try:
            recovery.StartJob(request, timeout=timeout, wait_for_ready=True)
            return
        except grpc.RpcError as error:
            failure = from_rpc(error, "the recovery coordinator")
            if not isinstance(failure, Temporary) or time.monotonic() > deadline:
                raise failure from error
        time.sleep(RETRY_PAUSE)


class WorkerGroup:
    """Workers of a cluster that another process holds. They end with this process; the cluster goes on.

    ``path``: the cluster's directory, where the group registers so that `scar kill worker-0` finds it.
    """

    def __init__(self, path: Path, cluster: ClusterState, environment: Mapping[str, str] | None = None) -> None:
        self._home = ClusterDirectory(path, "train")
        self._cluster = cluster
        self._environment = dict(environment or {})
        self._supervisor: Supervisor | None = None

    def __enter__(self) -> WorkerGroup:
        self._home.claim()
        self._supervisor = Supervisor(self._home.logs, changed=self._record)
        return self

    def __exit__(self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None) -> None:
        if self._supervisor is not None:
            self._supervisor.stop([process.name for process in self.processes()], WORKER_GRACE)
            self._supervisor.close()
            self._record()
        self._home.release()

    def start(self, train_file: Path, job: str, count: int) -> list[str]:
        """Start ``count`` workers that train this job by this file; returns their names."""
        settings = specs.Settings(
            self._home.path, self._cluster.label, self._cluster.redis, self._cluster.store, self._environment
        )
        names = [f"worker-{number}" for number in range(count)]
        if self._supervisor is not None:
            self._supervisor.start(*(specs.worker(settings, name, train_file, job, self._cluster.addresses) for name in names))
        return names

    def wait(self, timeout: float) -> dict[str, int]:
        """Exit code of every worker by name, when all have ended. Raises :class:`scar.errors.DeadlineExceeded`."""
        names = [process.name for process in self.processes()]
        return self._supervisor.wait(names, timeout) if self._supervisor else {}

    def processes(self) -> list[ProcessInfo]:
        return self._supervisor.info() if self._supervisor else []

    def _record(self) -> None:
        self._home.write(replace(self._cluster, processes=self.processes()))
