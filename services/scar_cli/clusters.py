"""Which cluster a command means, and how to reach it: on this machine, by a coordinator's address, or on Kubernetes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from scar.errors import ConfigError, Unreachable
from scar_cli.places import Place
from scar_kube.where import Where
from scar_local import ClusterDirectory, ClusterState
from scar_local.directory import default_directory
from scar_runtime.status import ClusterStatus, Observer, ProcessInfo

if TYPE_CHECKING:
    from scar_kube.release import Release


class Cluster(Protocol):
    """Something that can be looked at."""

    @property
    def where(self) -> str: ...

    def observer(self) -> Observer: ...

    def processes(self) -> tuple[ProcessInfo, ...]: ...

    def ended(self) -> bool: ...


@dataclass(frozen=True)
class Target:
    """A running cluster. ``state``: only of one on this machine; others are known by their recovery coordinator alone."""

    recovery: str
    addresses: Mapping[str, str] = field(default_factory=dict)
    directory: Path | None = None
    state: ClusterState | None = None

    @property
    def where(self) -> str:
        return self.recovery

    def observer(self) -> Observer:
        return Observer(self.recovery, self.addresses)

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


def running(name: str) -> Target | None:
    """The cluster of this name below the current folder, when it runs."""
    home = ClusterDirectory(default_directory(name))
    state = home.read() if home.alive() else None
    if state is None or "recovery" not in state.addresses:
        return None
    return Target(state.addresses["recovery"], state.addresses, home.path, state)


class ReleaseTarget:
    """A release on Kubernetes. Its forwards end with this process."""

    def __init__(self, release: Release) -> None:
        self.release = release
        self._seen: tuple[ProcessInfo, ...] = ()

    @property
    def where(self) -> str:
        return f"port 7070 of the recovery pods of {self.release}"

    def observer(self) -> Observer:
        return self.release.observer()

    def processes(self) -> tuple[ProcessInfo, ...]:
        """Its pods; while the API server is away, as they were."""
        try:
            self._seen = self.release.processes()
        except Unreachable:
            if not self._seen:
                raise
        return self._seen

    def ended(self) -> bool:
        return False  # it may be installed again


def find(place: Place) -> Cluster:
    """The cluster that is meant. Raises :class:`ConfigError` when it is not there."""
    if place.release is not None:
        return ReleaseTarget(find_release(place.release))
    target = Target(place.recovery) if place.recovery else running(place.cluster)
    if target is None:
        name = place.cluster
        raise ConfigError(
            f"no cluster {name!r} runs in {default_directory(name).absolute()}",
            "Start one by `scar up`, change to its folder, or name one by --cluster, --recovery HOST:PORT or --on kubernetes",
        )
    return target


def find_release(where: Where) -> Release:
    from scar_kube.release import Release

    return Release.find(where)


def look(target: Cluster) -> ClusterStatus:
    """One look at all of its services. Raises :class:`ConfigError` when not even the recovery coordinator answers."""
    with target.observer() as observer:
        status = observer.read()
    if status.recovery is None:
        raise ConfigError(
            status.problems[0] if status.problems else "the recovery coordinator does not answer",
            f"It should listen at {target.where}; wait for its restart, or see `scar doctor`",
        )
    return status
