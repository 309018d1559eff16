"""A cluster's directory: who holds it, where its services listen, which processes it has.

.scar/local/cluster.json     addresses and processes, rewritten at every change
.scar/local/cluster.lock     locked while the cluster lives; the system lets go of it however the cluster ends
.scar/local/train.json, .lock   the same for the workers of a `scar train` that uses this cluster
.scar/local/logs/<name>.log, .scar/local/store/
.scar/local/store.key        signs what lies in that store; for its owner alone
.scar/local/tls/             certificates, if it was started with TLS
.scar/local/token            else what every call carries
.scar/local/redis.conf       the password of its Redis
.scar/local/cuts/            which processes are to be cut off from the network, and until when
.scar/local/shards.json      how many shards `scar scale` has asked for

All of it is its owner's alone.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import BinaryIO

from scar.errors import ConfigError
from scar_admin.status import ProcessInfo
from scar_local.private_files import close_folder

DEFAULT_NAME = "local"


def default_directory(name: str = DEFAULT_NAME) -> Path:
    """``.scar/<name>`` below the current folder."""
    return Path(".scar") / name


@dataclass(frozen=True)
class ClusterState:
    """What ``cluster.json`` says. ``addresses``: coordinator ("recovery", "checkpoint", "detector") ->
    host:port.

    ``label``: what the services call this cluster. ``tls``: they know each other by certificates.
    ``cut_problem``: why processes of it cannot be cut off; empty: they can.
    """

    pid: int
    redis: str
    store: str
    job: str = ""
    addresses: Mapping[str, str] = field(default_factory=dict)
    processes: Sequence[ProcessInfo] = ()
    label: str = ""
    tls: bool = False
    cut_problem: str = ""


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

    @property
    def certificates(self) -> Path:
        return self.path / "tls"

    @property
    def token(self) -> Path:
        return self.path / "token"

    @property
    def redis_config(self) -> Path:
        return self.path / "redis.conf"

    def new_label(self) -> str:
        """Name for one life of a cluster in this directory: the Redis and the store that it uses may serve
        others, too.
        """
        return f"{re.sub(r'[^A-Za-z0-9_.-]', '-', self.path.name)[:40]}-{secrets.token_hex(4)}"

    def claim(self) -> None:
        """Hold the directory until :meth:`release` or the end of this process. :class:`ConfigError` when
        it is in use.
        """
        with self._writable_errors():
            close_folder(self.path)
            self.logs.mkdir(exist_ok=True)
            lock = os.open(self._lock, os.O_RDWR | os.O_CREAT, 0o644)
        if not _lock_soon(lock):
            os.close(lock)
            state = self.read()
            who = f" by process {state.pid}" if state else ""
            raise ConfigError(
                f"{self.path} is in use{who}",
                "Use the running cluster, stop it by `scar down`, or choose another name by `--cluster NAME`",
            )
        self._held = lock

    def log(self, name: str) -> BinaryIO:
        """A new log of this name. Raises :class:`ConfigError`."""
        with self._writable_errors():
            close_folder(self.path)
            self.logs.mkdir(exist_ok=True)
            return (self.logs / name).open("wb")

    @contextmanager
    def _writable_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            why = f"{error.filename or self.path}: {error.strerror}"
            raise ConfigError(
                f"{self.path} cannot be used: {why}", "Choose a directory that you may write"
            ) from error

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
            draft.touch(mode=0o600)  # the URLs of its Redis and store may have passwords
            draft.write_text(json.dumps(asdict(state), indent=1))
            draft.replace(self._state)

    def read(self) -> ClusterState | None:
        """The last state; None when there is none or it is of another version."""
        try:
            return _decode_state(self._state.read_bytes())
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            return None


def _decode_state(data: bytes) -> ClusterState:
    """Raises ValueError, TypeError, KeyError or RecursionError for what is no state of this version."""
    raw = json.loads(data)
    processes = tuple(ProcessInfo(**entry) for entry in raw["processes"])
    state = ClusterState(**{**raw, "addresses": dict(raw["addresses"]), "processes": processes})
    texts = [state.redis, state.store, state.job, state.label, state.cut_problem, *state.addresses.values()]
    texts += [text for one in processes for text in (one.name, one.state, one.part)]
    numbers = [state.pid, *(number for one in processes for number in (one.pid, one.restarts))]
    if not all(isinstance(text, str) for text in texts) or not all(type(number) is int for number in numbers):
        raise TypeError("a text or a number is something else")
    return state


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
