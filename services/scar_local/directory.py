"""A cluster's directory: who holds it, where its services listen, which processes it has.

.scar/local/cluster.json     addresses and processes, rewritten at every change
.scar/local/cluster.lock     locked while the cluster lives; the system lets go of it however the cluster ends
.scar/local/train.json, .lock   the same for the workers of a `scar train` that uses this cluster
.scar/local/logs/<name>.log, .scar/local/store/
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from scar.errors import ConfigError
from scar_runtime.status import ProcessInfo

DEFAULT_NAME = "local"


def default_directory(name: str = DEFAULT_NAME) -> Path:
    """``.scar/<name>`` below the current folder."""
    return Path(".scar") / name


@dataclass(frozen=True)
class ClusterState:
    """What ``cluster.json`` says. ``addresses``: coordinator ("recovery", "checkpoint", "detector") -> host:port.

    ``label``: what the services call this cluster.
    """

    pid: int
    redis: str
    store: str
    job: str = ""
    addresses: Mapping[str, str] = field(default_factory=dict)
    processes: Sequence[ProcessInfo] = ()
    label: str = ""


class ClusterDirectory:
    """One part ("cluster" or "train") of a cluster's directory. Only the holder of the claim may write it."""

    def __init__(self, path: Path, part: str = "cluster") -> None:
        self.path = path.absolute()
        self._state = self.path / f"{part}.json"
        self._lock = self.path / f"{part}.lock"
        self._held: int | None = None
        self._writing = threading.Lock()

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    def new_label(self) -> str:
        """Name for one life of a cluster in this directory: the Redis and the store that it uses may serve others, too."""
        return f"{re.sub(r'[^A-Za-z0-9_.-]', '-', self.path.name)[:40]}-{secrets.token_hex(4)}"

    def claim(self) -> None:
        """Hold the directory until :meth:`release` or the end of this process. :class:`ConfigError` when it is in use."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = os.open(self._lock, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise ConfigError(
                f"{self.path} cannot be used: {error.strerror}", "Choose a directory that you may write"
            ) from error
        if not _lock_soon(lock):
            os.close(lock)
            state = self.read()
            who = f" by process {state.pid}" if state else ""
            raise ConfigError(
                f"{self.path} is in use{who}",
                "Use the running cluster, stop it by `scar down`, or choose another name by `--cluster NAME`",
            )
        self._held = lock

    def release(self) -> None:
        if self._held is not None:
            os.close(self._held)  # closing lets go of the lock
            self._held = None

    def alive(self) -> bool:
        """Whether some process holds the directory."""
        try:
            lock = os.open(self._lock, os.O_RDWR)
        except OSError:
            return False
        try:
            return not _try_lock(lock)
        finally:
            os.close(lock)

    def write(self, state: ClusterState) -> None:
        """Replace the state in one step: a reader sees the old one or the new one. Any thread may call it."""
        draft = self._state.with_suffix(".tmp")
        with self._writing:
            draft.write_text(json.dumps(asdict(state), indent=1))
            draft.replace(self._state)

    def read(self) -> ClusterState | None:
        """The last state; None when there is none or it is of another version."""
        try:
            raw = json.loads(self._state.read_text())
            return ClusterState(**{**raw, "processes": tuple(ProcessInfo(**entry) for entry in raw["processes"])})
        except (OSError, ValueError, TypeError, KeyError):
            return None


def _try_lock(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _lock_soon(lock: int) -> bool:
    """A few tries, since :meth:`ClusterDirectory.alive` of another process holds the lock for an instant."""
    for _ in range(3):
        if _try_lock(lock):
            return True
        time.sleep(0.02)
    return False
