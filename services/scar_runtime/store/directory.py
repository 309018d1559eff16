"""A directory as an object store: for one machine, or for a shared file system that has hard links (NFS, CephFS, ext4).

An object is written to a temporary file, synced, and then appears at once under its name: by ``link`` when it must be new, by
``rename`` when it replaces. The folder is synced, too, so that the name survives a crash of the machine.
"""

from __future__ import annotations

import errno
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from scar.errors import AlreadyExists, ObjectNotFound, StoreFull, StoreUnavailable, UnsafeStore
from scar_runtime.store.base import Data, Store, parts

TEMPORARY = ".tmp"
ABANDONED_SECONDS = 3600.0
IO_VECTOR = 512  # buffers handed to one writev; Linux takes 1024

Names = list[str]

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)


class DirectoryStore(Store):
    """Objects as files below ``root``."""

    def __init__(self, url: str, root: Path, prefix: str = "") -> None:
        super().__init__(url, prefix)
        self._root = root
        self._temporary = root / TEMPORARY
        with self._typed(str(root)):
            self._temporary.mkdir(parents=True, exist_ok=True)
            self._sweep()

    def put(self, key: str, data: Data) -> None:
        target = self._path(key)
        with self._typed(key), self._written(target, data) as file:
            os.replace(file, target)
            _sync(target.parent)

    def create(self, key: str, data: Data) -> None:
        target = self._path(key)
        with self._typed(key), self._written(target, data) as file:
            try:
                os.link(file, target)
            except FileExistsError as error:
                raise AlreadyExists(f"{self.url}: {key} exists already") from error
            except OSError as error:
                if error.errno in _NO_LINKS:
                    raise UnsafeStore(
                        f"{self.url}: the file system has no hard links", "Use another file system or S3"
                    ) from error
                raise
            _sync(target.parent)

    def get(self, key: str) -> bytes:
        with self._typed(key):
            return self._path(key).read_bytes()

    def get_range(self, key: str, start: int, length: int) -> bytes:
        with self._typed(key), open(self._path(key), "rb") as file:
            file.seek(start)
            return file.read(max(0, min(length, os.fstat(file.fileno()).st_size - start)))

    def list(self, prefix: str = "") -> list[str]:
        folder = self._root / self.prefix / prefix.rpartition("/")[0]
        base = self._root / self.prefix
        with self._typed(prefix or "."):
            found = (os.path.join(place, name) for place, names in self._walk(folder) for name in names)
            keys = (os.path.relpath(path, base).replace(os.sep, "/") for path in found)
            names: Names = sorted(key for key in keys if key.startswith(prefix))
            return names

    def delete(self, key: str) -> None:
        with self._typed(key):
            self._path(key).unlink(missing_ok=True)

    def under(self, prefix: str) -> Self:
        return type(self)(self.url, self._root, self._full(prefix))

    def _path(self, key: str) -> Path:
        return self._root / self._full(key)

    def _walk(self, folder: Path) -> Iterator[tuple[str, Names]]:
        for place, folders, names in os.walk(folder, onerror=_unless_absent):
            folders[:] = [name for name in folders if place != str(self._root) or name != TEMPORARY]
            yield place, names

    @contextmanager
    def _written(self, target: Path, data: Data) -> Iterator[Path]:
        """A synced temporary file with the data, gone afterwards unless it was renamed; the target's folder exists."""
        target.parent.mkdir(parents=True, exist_ok=True)
        file = self._temporary / uuid.uuid4().hex
        try:
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            try:
                _write(descriptor, parts(data))
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            yield file
        finally:
            file.unlink(missing_ok=True)

    def _sweep(self) -> None:
        """Remove what processes that died in mid write have left."""
        for file in self._temporary.iterdir():
            try:
                if time.time() - file.stat().st_mtime > ABANDONED_SECONDS:
                    file.unlink()
            except FileNotFoundError:
                continue

    @contextmanager
    def _typed(self, what: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise ObjectNotFound(f"{self.url}: {what} does not exist") from error
        except PermissionError as error:
            raise StoreUnavailable(f"{self.url}: {what}: {error.strerror}", "Let the services' user write there") from error
        except OSError as error:
            if error.errno in _FULL:
                raise StoreFull(f"{self.url}: {what}: {error.strerror}") from error
            raise StoreUnavailable(f"{self.url}: {what}: {error.strerror}") from error


def _write(descriptor: int, rest: list[memoryview]) -> None:
    while rest:
        written = os.writev(descriptor, rest[:IO_VECTOR])
        while rest and written >= len(rest[0]):
            written -= len(rest.pop(0))
        if written:
            rest[0] = rest[0][written:]


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unless_absent(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error
