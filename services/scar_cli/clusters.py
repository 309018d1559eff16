"""Which cluster a command means, and how to reach it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from scar.errors import ConfigError
from scar_local import ClusterDirectory, ClusterState, ClusterStatus, Observer, ProcessInfo
from scar_local.directory import default_directory


@dataclass(frozen=True)
class Target:
    """A running cluster. ``state``: only of one on this machine; others are known by their recovery coordinator alone."""

    recovery: str
    addresses: Mapping[str, str] = field(default_factory=dict)
    directory: Path | None = None
    state: ClusterState | None = None

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


def find(name: str, recovery: str = "") -> Target:
    """The cluster at ``recovery`` (host:port), else the one called ``name``. Raises :class:`ConfigError` when none runs."""
    target = Target(recovery) if recovery else running(name)
    if target is None:
        raise ConfigError(
            f"no cluster {name!r} runs in {default_directory(name).absolute()}",
            "Start one by `scar up`, change to its folder, or name another by --cluster NAME or --recovery HOST:PORT",
        )
    return target


def look(target: Target) -> ClusterStatus:
    """One look at all of its services. Raises :class:`ConfigError` when not even the recovery coordinator answers."""
    with target.observer() as observer:
        status = observer.read()
    if status.recovery is None:
        raise ConfigError(
            status.problems[0] if status.problems else "the recovery coordinator does not answer",
            f"It should listen at {target.recovery}; wait for its restart, or see `scar doctor`",
        )
    return status
