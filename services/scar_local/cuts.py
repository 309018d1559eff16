"""Cuts of a cluster's network that somebody has asked for, and the thread that makes them true.

Who wants a cut writes a file into the cluster's directory; all that supervise processes there see it. So a
cut begins wherever it is asked for, and ends in time whatever becomes of who asked.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from scar.errors import ConfigError
from scar_admin.status import ProcessInfo
from scar_local.network_cut import NetworkCut
from scar_local.private_files import replace_file
from scar_local.socket_filters import filter_problem

SWEEP = 0.015  # seconds between two looks at the sockets
BEGIN_SECONDS = 5.0  # for all supervisors to see a request

ListProcesses = Callable[[], Sequence[ProcessInfo]]


@dataclass(frozen=True)
class CutRequest:
    """``until``: of this machine's monotonic clock."""

    pid: int
    until: float


class CutRequests:
    """``folder``: of the files, one a process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def ask(self, name: str, pid: int, seconds: float) -> None:
        """From now on; of two requests for one process the last one holds."""
        self._folder.mkdir(exist_ok=True, mode=0o700)
        request = CutRequest(pid, time.monotonic() + seconds)
        replace_file(self._folder / f"{name}.json", json.dumps(asdict(request)).encode())

    def withdraw(self, name: str) -> None:
        (self._folder / f"{name}.json").unlink(missing_ok=True)

    def read(self) -> dict[str, int]:
        """Pid by name of what is to be cut off now. Files of what is over are removed."""
        found = {}
        with suppress(OSError):
            for file in self._folder.glob("*.json"):
                request = _read_request(file)
                if request is not None and time.monotonic() < request.until:
                    found[file.stem] = request.pid
                else:
                    file.unlink(missing_ok=True)
        return found


def _read_request(file: Path) -> CutRequest | None:
    try:
        raw = json.loads(file.read_bytes())
        return CutRequest(int(raw["pid"]), float(raw["until"]))
    except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None


class CutKeeper:
    """Cuts off what is asked for, as far as sockets of the processes of one supervisor go, and its own.

    ``folder`` None: nobody asks. ``processes``: those of the supervisor. ``names``: of what is cut off now,
    of these. ``problem``: why nothing can be; empty: it can, or nothing has started yet.
    """

    def __init__(self, folder: Path | None, processes: ListProcesses) -> None:
        self._requests = CutRequests(folder) if folder is not None else None
        self._processes = processes
        self._thread: threading.Thread | None = None
        self._said: frozenset[str] = frozenset()
        self._tried = folder is None
        self.names: frozenset[str] = frozenset()
        self.problem = ""

    def look(self) -> bool:
        """Begin what is asked for; called again and again. Whether :attr:`names` have changed since."""
        if not self._tried and (own := self._own()):
            self.problem = filter_problem(next(iter(own.values())))
            self._tried = True
        is_idle = self._thread is None or not self._thread.is_alive()
        if is_idle and self._requests is not None and not self.problem and self._wanted(self._requests):
            self._thread = threading.Thread(
                target=self._keep_cut, args=(self._requests,), name="cut", daemon=True
            )
            self._thread.start()
        before, self._said = self._said, self.names
        return before != self._said

    def _keep_cut(self, requests: CutRequests) -> None:
        network = NetworkCut()
        try:
            while cut := self._wanted(requests):
                own = self._own()
                network.sweep(cut.values(), [*own.values(), os.getpid()])
                self.names = frozenset(name for name, pid in cut.items() if own.get(name) == pid)
                time.sleep(SWEEP)
        finally:
            self.names = frozenset()
            while not network.release([*self._own().values(), os.getpid()]):
                time.sleep(SWEEP)

    def _wanted(self, requests: CutRequests) -> dict[str, int]:
        """The cut of a process that has ended is over: its successor is another one."""
        return {name: pid for name, pid in requests.read().items() if _lives(pid)}

    def _own(self) -> dict[str, int]:
        return {process.name: process.pid for process in self._processes() if process.alive}


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def cut_folder(directory: Path) -> Path:
    """Where requests for a cluster of this directory are."""
    return directory / "cuts"


def begin_cut(directory: Path, processes: ListProcesses, name: str, seconds: float) -> None:
    """Cut off a process of the cluster in ``directory``; returns when it is. Its supervisor ends it in time.

    Raises :class:`ConfigError` when it does not come about.
    """
    requests = CutRequests(cut_folder(directory))
    requests.ask(name, next(one.pid for one in processes() if one.name == name), seconds)
    deadline = time.monotonic() + min(BEGIN_SECONDS, seconds)
    while time.monotonic() < deadline:
        if any(one.name == name and one.state == "cut" for one in processes()):
            return
        time.sleep(SWEEP)
    requests.withdraw(name)
    raise ConfigError(
        f"{name} was not cut off: nobody who may filter its sockets answers",
        f"Use `scar freeze {name}`, or `scar kill {name}`",
    )


def end_cut(directory: Path, name: str) -> None:
    """Before its time. Nothing happens when it is over."""
    CutRequests(cut_folder(directory)).withdraw(name)
