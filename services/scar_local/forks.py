"""The supervisor's end of its fork server: start a process, signal it, hear what became of it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

BUFFER = 1 << 16
READY_SECONDS = 30.0  # for what is imported beforehand; torch takes six, of one core
ANSWER_SECONDS = 60.0  # for one start: the first one imports what the services need, 0.7 s on an idle machine
GRACE_SECONDS = 5.0  # for the server to end
LAST_BYTES = 1000  # of a log that are worth showing


class ForkServer:
    """Processes that are forked from one that has imported what they need (:mod:`scar_local.forkserver`).

    ``environment``: of the server; what Python and its libraries read while they are imported counts for all
    processes. ``log``: the server's own file. ``preload``: modules that it imports before its first process,
    too; when they take too long, or end it, each process imports them itself.

    One thread starts processes, since all of them end with the *thread* that started the server. No two calls
    at a time.
    """

    def __init__(self, environment: Mapping[str, str], log: Path, preload: Sequence[str] = ()) -> None:
        self._environment = environment
        self._log = log
        self._preload = tuple(preload)
        self._ready = False
        self._begun = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._lines = b""
        self._started: list[int] = []
        self._changes: list[tuple[int, int]] = []
        self._living: set[int] = set()
        self._logged = 0  # bytes in the log that an earlier server has written

    def ready(self) -> bool:
        """Whether a process starts at once; a server that has to import something first is begun. True also
        where it cannot be begun: :meth:`spawn` says why.
        """
        if not self._preload:
            return True
        if self._control is None:
            try:
                self._start_server()
            except OSError:
                return True
        self._receive_answers(0.0)
        if not self._ready and time.monotonic() > self._begun + READY_SECONDS:
            self.close()
        return self._ready or not self._preload

    def spawn(self, name: str, command: Sequence[str], environment: Mapping[str, str], log: Path) -> int:
        """Start one process, as leader of its session, and return its pid. Raises OSError when that is not
        possible.
        """
        if self._control is None:
            self._start_server()
        with contextlib.suppress(BrokenPipeError):  # the server has ended: that is heard below
            self._send_order(
                {"name": name, "command": list(command), "environment": dict(environment), "log": str(log)}
            )
        deadline = time.monotonic() + ANSWER_SECONDS
        while not self._started:
            if not self._receive_answers(deadline - time.monotonic()):
                end = "ended" if self._control is None else "does not answer"
                self.close()
                words = last_words(self._log, self._logged)
                raise OSError(f"the fork server {end}{words and f': {words}'}")
        if not (pid := self._started.pop()):
            raise OSError("the system refused another process")
        self._living.add(pid)
        return pid

    def signal(self, pid: int, number: signal.Signals) -> None:
        """To the process and its own children; nothing happens when it has ended."""
        with contextlib.suppress(OSError):  # the server has ended, and its processes with it
            self._send_order({"signal": int(number), "pid": pid})

    def changes(self) -> list[tuple[int, int]]:
        """(pid, status of waitpid) for each end, pause and continuation since the last call.

        When the server has ended, all its processes have been killed; the next start begins another server.
        """
        while self._receive_answers(0.0):
            pass
        found, self._changes = self._changes, []
        return found

    def close(self) -> None:
        """End the server and whatever it has started. Safe to call twice."""
        if self._process is None or self._control is None:
            return
        self._control.close()
        if not self._ready:
            self._preload = ()
            self._process.kill()
        try:
            self._process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = self._control = None
        self._changes += [(pid, signal.SIGKILL) for pid in self._living]
        self._lines = b""
        self._started = []
        self._living = set()

    def _start_server(self) -> None:
        ours, theirs = socket.socketpair()
        server = [
            sys.executable,
            "-P",
            "-m",
            "scar_local.forkserver",
            str(os.getpid()),
            str(theirs.fileno()),
            str(self._log),
            *self._preload,
        ]
        self._ready = not self._preload
        self._begun = time.monotonic()
        with theirs, self._log.open("ab") as log:
            self._logged = log.tell()
            self._process = subprocess.Popen(
                server,
                env={**os.environ, **self._environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._control = ours

    def _send_order(self, order: Mapping[str, Any]) -> None:
        if self._control is None:
            raise BrokenPipeError("the fork server does not run")
        self._control.sendall(json.dumps(order).encode() + b"\n")

    def _receive_answers(self, seconds: float) -> bool:
        """Take in what comes within this time; whether something came."""
        if self._control is None or not select.select([self._control], [], [], max(0.0, seconds))[0]:
            return False
        try:
            data = self._control.recv(BUFFER)
        except ConnectionResetError:  # it has ended with an order unread
            data = b""
        if not data:
            self.close()
            return False
        *whole, self._lines = (self._lines + data).split(b"\n")
        for answer in map(json.loads, whole):
            if "ready" in answer:
                self._ready = True
                continue
            if "status" not in answer:
                self._started.append(answer["pid"])
                continue
            self._changes.append((answer["pid"], answer["status"]))
            if os.WIFEXITED(answer["status"]) or os.WIFSIGNALED(answer["status"]):
                self._living.discard(answer["pid"])
        return True


def last_words(log: Path, begin: int = 0, most: int = 2) -> str:
    """The last lines of a log after byte ``begin``, as one; of a traceback only the error. Empty: there
    are none.
    """
    try:
        with log.open("rb") as file:
            file.seek(max(begin, file.seek(0, os.SEEK_END) - LAST_BYTES))
            text = file.read().decode(errors="replace").strip()
    except OSError:
        return ""
    lines = text.splitlines()
    return " | ".join(line.strip() for line in lines[-1 if "Traceback (most" in text else -most :]).rstrip(
        "."
    )
