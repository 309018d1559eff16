"""Which cluster a command means, and how to reach it: here, by an address, or on Kubernetes."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from scar.errors import ConfigError, Unreachable
from scar_admin.log_text import LogReader
from scar_admin.observer import ClusterObserver
from scar_admin.status import ClusterStatus, ProcessInfo
from scar_cli.cluster_ref import ClusterRef
from scar_kube.where import Where
from scar_local import ClusterDirectory, ClusterState
from scar_local.cluster_operator import take_operator_credentials
from scar_local.directory import default_directory

if TYPE_CHECKING:
    from scar_kube.release import Release


class ClusterTarget(Protocol):
    """Something that can be looked at."""

    @property
    def where(self) -> str: ...

    def observer(self) -> ClusterObserver: ...

    def processes(self) -> tuple[ProcessInfo, ...]: ...

    def ended(self) -> bool: ...


@dataclass(frozen=True)
class DirectTarget:
    """A running cluster.

    ``state``: only of one on this machine; others are known by their recovery coordinator alone.
    """

    recovery: str
    addresses: Mapping[str, str] = field(default_factory=dict)
    directory: Path | None = None
    state: ClusterState | None = None

    @property
    def where(self) -> str:
        return self.recovery

    def observer(self) -> ClusterObserver:
        return ClusterObserver(self.recovery, self.addresses)

    def processes(self) -> tuple[ProcessInfo, ...]:
        """As its files say now; empty for a cluster that is not on this machine."""
        if self.directory is None:
            return ()
        parts = [ClusterDirectory(self.directory, part) for part in ("cluster", "train")]
        states = [part.read() for part in parts if part.alive()]
        return tuple(process for state in states if state for process in state.processes)

    def ended(self) -> bool:
        """A cluster on this machine has stopped; of others nobody can tell."""
        return self.directory is not None and not ClusterDirectory(self.directory).alive()

    @property
    def certificates(self) -> Path | None:
        """The folder of its certificates; None: it has none, or they are elsewhere."""
        if self.directory is None or self.state is None or not self.state.tls:
            return None
        return ClusterDirectory(self.directory).certificates


def running_cluster(name: str) -> DirectTarget | None:
    """The cluster of this name below the current folder, when it runs."""
    home = ClusterDirectory(default_directory(name))
    state = home.read() if home.alive() else None
    if state is None or "recovery" not in state.addresses:
        return None
    take_operator_credentials(home, state.tls)
    return DirectTarget(state.addresses["recovery"], state.addresses, home.path, state)


class ReleaseTarget:
    """A release on Kubernetes. Its forwards end with this process."""

    def __init__(self, release: Release) -> None:
        self.release = release
        self._seen: tuple[ProcessInfo, ...] = ()

    @property
    def where(self) -> str:
        return f"port 7070 of the recovery pods of {self.release}"

    def observer(self) -> ClusterObserver:
        return self.release.observer()

    def processes(self) -> tuple[ProcessInfo, ...]:
        """Its pods; while the API server is away, as they were."""
        try:
            self._seen = self.release.processes()
        except Unreachable:
            if not self._seen:
                raise
        return self._seen

    def logs(self) -> LogReader:
        """Of its pods."""
        from scar_kube.pod_logs import PodLogs

        return PodLogs(self.release)

    def ended(self) -> bool:
        return False  # it may be installed again


def cluster_exists(ref: ClusterRef) -> bool:
    """Whether there is a cluster to ask.

    One that is named by an address, or a release, is taken to be there.
    """
    return bool(ref.recovery) or ref.release is not None or running_cluster(ref.cluster) is not None


def current_job(ref: ClusterRef) -> str:
    """The job that the cluster runs, or the one that it ran last; empty: nobody can tell."""
    if ref.release is not None:
        with suppress(ConfigError, Unreachable):
            status = read_status(find_cluster(ref))
            return status.job.name if status.job else ""
        return ""
    home = default_directory(ref.cluster)
    cluster, train = (ClusterDirectory(home, part).read() for part in ("cluster", "train"))
    if cluster is None:
        return ""
    return train.job if train and train.label == cluster.label else cluster.job


def find_cluster(ref: ClusterRef) -> ClusterTarget:
    """The cluster that is meant. Raises :class:`ConfigError` when it is not there."""
    if ref.release is not None:
        return ReleaseTarget(find_release(ref.release))
    target = DirectTarget(ref.recovery) if ref.recovery else running_cluster(ref.cluster)
    if target is None:
        name = ref.cluster
        raise ConfigError(
            f"no cluster {name!r} runs in {default_directory(name).absolute()}",
            "Start one by `scar up`, change to its folder, or name one by --cluster, --recovery HOST:PORT or"
            " --on kubernetes",
        )
    return target


def find_release(where: Where) -> Release:
    from scar_kube.release import Release

    return Release.find(where)


def read_status(target: ClusterTarget) -> ClusterStatus:
    """One look at all of its services.

    Raises :class:`ConfigError` when not even the recovery coordinator answers.
    """
    with target.observer() as observer:
        return observed_status(observer, target)


def observed_status(observer: ClusterObserver, target: ClusterTarget) -> ClusterStatus:
    """As :func:`read_status`, by an observer that is there already."""
    status = observer.read()
    if status.recovery is None:
        raise ConfigError(
            status.problems[0] if status.problems else "the recovery coordinator does not answer",
            f"It should listen at {target.where}; wait for its restart, or see `scar doctor`",
        )
    return status
