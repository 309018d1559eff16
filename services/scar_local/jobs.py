"""Workers of a cluster that another process holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from scar_admin.status import ProcessInfo
from scar_local import specs
from scar_local.cuts import cut_folder
from scar_local.directory import ClusterDirectory, ClusterState
from scar_local.processes import Supervisor

WORKER_GRACE = 3.0  # seconds for workers to reach their next clock after SIGTERM


class WorkerGroup:
    """Workers of a cluster that another process holds. They end with this process; the cluster goes on.

    ``path``: the cluster's directory, where the group registers so that `scar kill worker-0` finds it.
    """

    def __init__(
        self, path: Path, cluster: ClusterState, environment: Mapping[str, str] | None = None
    ) -> None:
        self._home = ClusterDirectory(path, "train")
        self._cluster = cluster
        self._environment = dict(environment or {})
        self._supervisor: Supervisor | None = None

    def __enter__(self) -> WorkerGroup:
        self._home.claim()
        environment = {**specs.machine_variables(), **self._environment}
        self._supervisor = Supervisor(
            self._home.logs,
            environment,
            changed=self._write_state,
            cuts=cut_folder(self._home.path),
        )
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._supervisor is not None:
            self._supervisor.stop([process.name for process in self.processes()], WORKER_GRACE)
            self._supervisor.close()
            self._write_state()
        self._home.release()

    def start(self, train_file: Path, job: str, count: int, arguments: Sequence[str] = ()) -> list[str]:
        """Start ``count`` workers that train this job by this file and its ``arguments``; returns their
        names.
        """
        settings = specs.ProcessSettings(
            self._home.path,
            self._cluster.label,
            self._cluster.redis,
            self._cluster.store,
            self._environment,
            self._home.certificates if self._cluster.tls else None,
        )
        names = [f"worker-{number}" for number in range(count)]
        if self._supervisor is not None:
            file = specs.TrainFile(train_file, tuple(arguments))
            self._supervisor.start(
                *(specs.worker(settings, name, file, job, self._cluster.addresses) for name in names)
            )
        return names

    def wait(self, timeout: float) -> dict[str, int]:
        """Exit code of every worker by name, when all have ended. Raises
        :class:`scar.errors.DeadlineExceeded`.
        """
        names = [process.name for process in self.processes()]
        return self._supervisor.wait(names, timeout) if self._supervisor else {}

    def processes(self) -> list[ProcessInfo]:
        return self._supervisor.info() if self._supervisor else []

    def _write_state(self) -> None:
        self._home.write(replace(self._cluster, processes=self.processes()))
