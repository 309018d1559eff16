"""The live page of the demo: shows the cluster that runs, one after the other, while the demo measures it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from scar.errors import ConfigError
from scar_admin.log_text import LogText
from scar_admin.observer import ClusterObserver
from scar_admin.status import ClusterStatus, ProcessInfo
from scar_console.server import serve_cluster, served_beside
from scar_local import LocalCluster
from scar_local.cluster_logs import ClusterLogs
from scar_runtime.store import Store, open_store
from scar_runtime.store.signatures import find_key


class DemoStage:
    """What the page looks at. Nobody kills from the page: the demo counts what its own kills cost."""

    can_break: tuple[str, ...] = ()
    cannot_break: tuple[str, ...] = (
        "No buttons kill, freeze or cut here: the demo kills by itself, and counts what that costs. Try them"
        " with `scar up` and `scar console`.",
    )

    def __init__(self) -> None:
        self.url = ""
        self.closed = threading.Event()
        self.looking = threading.Lock()
        self._cluster: LocalCluster | None = None

    def show(self, cluster: LocalCluster | None) -> None:
        """From the next look on; nobody looks at the former one any more, so that it may stop."""
        with self.looking:
            self._cluster = cluster

    def observer(self) -> StageObserver:
        return StageObserver(self)

    def recovery_address(self) -> str:
        """Of the cluster that is shown; empty: none is."""
        cluster = self._cluster
        return cluster.endpoints.recovery_address if cluster is not None else ""

    def processes(self) -> tuple[ProcessInfo, ...]:
        cluster = self._cluster
        return tuple(cluster.processes()) if cluster is not None else ()

    def ended(self) -> bool:
        return self.closed.is_set()

    def store(self) -> Store | None:
        cluster = self._cluster
        return open_store(cluster.store_url, find_key(cluster.store_url)) if cluster is not None else None

    def logs(self) -> StageLogs:
        return StageLogs(self)

    def logs_folder(self) -> Path | None:
        """Of the cluster that is shown; None: none is."""
        cluster = self._cluster
        return cluster.directory / "logs" if cluster is not None else None

    def break_member(self, how: str, name: str) -> str:
        raise ConfigError(
            f"the demo kills by itself, and does not {how} {name}", "Try it with `scar up` and `scar console`"
        )


class StageObserver:
    """Of whatever cluster is shown. Between two of them it sees the former one as it was. For one thread."""

    def __init__(self, stage: DemoStage) -> None:
        self._stage = stage
        self._observer: ClusterObserver | None = None
        self._last = ClusterStatus()

    def __enter__(self) -> StageObserver:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._observer is not None:
            self._observer.close()
            self._observer = None

    def read(self, since_clock: int = 0) -> ClusterStatus:
        with self._stage.looking:
            address = self._stage.recovery_address()
            if not address:
                return self._last
            if self._observer is None or self._observer.recovery_address != address:
                self.close()
                self._observer = ClusterObserver(address)
            self._last = self._observer.read(since_clock)
            return self._last


class StageLogs:
    """Of whatever cluster is shown. For one thread."""

    def __init__(self, stage: DemoStage) -> None:
        self._stage = stage
        self._folder: Path | None = None
        self._logs: ClusterLogs | None = None

    def read(self) -> list[LogText]:
        folder = self._stage.logs_folder()
        if folder != self._folder:
            self._folder = folder
            self._logs = ClusterLogs(folder) if folder is not None else None
        return self._logs.read() if self._logs is not None else []


@contextmanager
def open_stage() -> Iterator[DemoStage]:
    """Its page is served as long as this lasts; viewers keep what they have seen last."""
    stage = DemoStage()
    stop = threading.Event()
    server = serve_cluster(stage, stop)
    stage.url = server.url
    with served_beside(server, stop):
        try:
            yield stage
        finally:
            stage.closed.set()
