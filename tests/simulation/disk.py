"""The disk under a directory store: real files in a folder of this run's own, on which every request takes
simulated time and may fail.

What the store asks of the file system goes through a few functions of :mod:`os` and through ``open``; those
are replaced, for paths in the folder. Nothing is synced for real. What is there is in the bucket's objects,
too, so that oracles look at one place, and damage there is damage on the disk.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.simulation.bucket import Bucket

HERE = "/proc/self/cwd/"  # the same in every run, each of which works in a folder of its own
FOLDER = "store"
URL = f"file://{HERE}{FOLDER}"
MEMORY = "/dev/shm"
FASTEST, MEAN = 0.00005, 0.0005  # seconds for a request
READING = ("open", "scandir")
WRITING = ("fsync", "link", "replace", "unlink", "pwritev")
NAMING = ("link", "replace")  # how an object appears under its name

# What goes wrong, by the trouble of an S3 that it stands for: the error, and whether only writing suffers.
ERRORS = {
    "refused": (errno.ESTALE, False),
    "busy": (errno.EIO, False),
    "garbled": (errno.EIO, False),
    "cut": (errno.EIO, False),
    "conflict": (errno.EIO, True),
    "lost": (errno.EIO, True),
    "denied": (errno.EACCES, True),
    "full": (errno.ENOSPC, True),
}
HANGS = {"silent": 1.0, "stalled": 1.0, "late": 0.1, "slow": 100.0}  # seconds for one request, as on NFS


class Disk:
    """Has the troubles of the bucket in whose place it is."""

    def __init__(self, bucket: Bucket, seed: int) -> None:
        self._bucket, self._scheduler = bucket, bucket.network.scheduler
        self._random = random.Random(f"disk {seed}")
        self._open = builtins.open  # which takes no time

    def install(self) -> None:
        """From now on files in the folder where this process works are on this disk."""
        for name in (*READING, *WRITING):
            setattr(os, name, self._guarded(name, getattr(os, name)))
        builtins.open = io.open = self._guarded("open", builtins.open)
        self._bucket.write_through = self._write_through

    def _write_through(self, key: str, body: bytes | None) -> None:
        """Somebody has changed an object by hand; None: it is gone. Called outside of every task."""
        if body is None:
            os.unlink(HERE + key)
        else:
            with self._open(HERE + key, "wb") as file:
                file.write(body)

    def _guarded(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(what: Any, *arguments: Any, **named: Any) -> Any:
            if self._scheduler.current is None or not _concerns(name, what):
                return real(what, *arguments, **named)
            key = _key(arguments[0] if name in NAMING else what)
            self._tell("send", name, key)
            self._pass_time(name)
            if name == "fsync":
                moment = self._bucket.host.wall(self._scheduler.now)
                return os.utime(what, (moment, moment))
            found = real(what, *arguments, **named)
            self._mirror(name, key)
            self._tell("done", name, key)
            return found

        return call

    def _tell(self, when: str, name: str, key: str) -> None:
        """By the names of S3's requests, so that the same traps fit."""
        task = self._scheduler.current
        operation = {"open": "GetObject", "unlink": "DeleteObject"}.get(name, "PutObject")
        if key and task is not None:
            self._scheduler.event(task.host, f"{when} {operation} {key}")

    def _pass_time(self, name: str) -> None:
        """Raises OSError."""
        troubles, host = self._bucket.troubles, self._bucket.host
        delay = FASTEST + self._random.expovariate(1 / MEAN)
        if troubles:
            delay += sum(seconds * troubles[kind] for kind, seconds in HANGS.items())
        self._scheduler.sleep(max(delay, host.paused_until - self._scheduler.now))
        for kind, (number, only_writing) in ERRORS.items():
            share = troubles[kind]
            if share and (name in WRITING or not only_writing) and self._random.random() < share:
                raise OSError(number, os.strerror(number))

    def _mirror(self, name: str, key: str) -> None:
        if key and name in NAMING:
            with self._open(HERE + key, "rb") as file:
                self._bucket.objects[key] = file.read()
            self._bucket.damaged.discard(key)
        elif key and name == "unlink":
            self._bucket.objects.pop(key, None)


@contextmanager
def working_folder() -> Iterator[None]:
    """This process works in a folder of its own, which lies in memory where it can."""
    memory = MEMORY if os.path.isdir(MEMORY) else None
    with tempfile.TemporaryDirectory(prefix="scar-disk-", dir=memory) as folder:
        os.chdir(folder)
        yield


def _concerns(name: str, what: Any) -> bool:
    """A descriptor that is synced or written is the store's."""
    return name in ("fsync", "pwritev") if isinstance(what, int) else str(what).startswith(HERE + FOLDER)


def _key(what: Any) -> str:
    """Of the object at this path; empty: there is none, but a folder or a draft."""
    text = str(what).removeprefix(HERE) if not isinstance(what, int) else ""
    return "" if "/.tmp" in text or text == FOLDER else text
