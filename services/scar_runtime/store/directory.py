"""A directory as an object store: for one machine, or for a shared file system that has hard links (NFS,
CephFS, ext4).

An object is written to a temporary file, synced, and then appears at once under its name: by ``link`` when it
must be new, by ``rename`` when it replaces. The folders that lead to it are synced, too, so that its name
survives a crash of the machine.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from copy import copy
from pathlib import Path
from typing import Self
from urllib.parse import SplitResult

from scar.errors import AlreadyExists, ConfigError, ObjectNotFound, StoreFull, StoreUnavailable, UnsafeStore
from scar_runtime.store.base import Buffer, Data, Store, parts

TEMPORARY = ".tmp"
ABANDONED_SECONDS = 3600.0
IO_VECTOR = 512  # buffers handed to one pwritev; Linux takes 1024
EARLY_BYTES = 1 << 20  # that the disk begins to write before all are there

FileNames = list[str]

_begin_writing = getattr(ctypes.CDLL(None), "sync_file_range", None)  # Linux alone has it
_WRITE = 2  # SYNC_FILE_RANGE_WRITE: without waiting for it

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)


def open_directory(url: str, parts: SplitResult) -> DirectoryStore:
    """The store behind ``file:///directory``. Raises :class:`ConfigError` for any other URL."""
    if parts.netloc or parts.query or not parts.path.startswith("/"):
        raise ConfigError(
            f"store {url!r} is not a directory's URL", "Write three slashes: file:///var/lib/scar"
        )
    return DirectoryStore(url, Path(parts.path))


class DirectoryStore(Store):
    """Objects as files below ``root``."""

    def __init__(self, url: str, root: Path, prefix: str = "") -> None:
        super().__init__(url, prefix)
        self._root = root
        self._temporary = root / TEMPORARY
        self._durable: set[Path] = set()  # folders whose names are
        with self._typed_errors(str(root)):
            _make_folder(self._temporary)
            self._sweep_abandoned()

    def put(self, key: str, data: Data) -> None:
        self._replace(key, [(0, data)])

    def put_pieces(self, key: str, pieces: Iterable[tuple[int, Buffer]]) -> None:
        """The disk writes the first while the next are made."""
        self._replace(key, pieces)

    def _replace(self, key: str, pieces: Iterable[tuple[int, Data]]) -> None:
        target = self._path_of(key)
        with self._typed_errors(key), self._synced_draft(target, pieces) as file:
            os.replace(file, target)
            _sync_folder(target.parent)

    def create(self, key: str, data: Data) -> None:
        target = self._path_of(key)
        with self._typed_errors(key), self._synced_draft(target, [(0, data)]) as file:
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
            _sync_folder(target.parent)

    def get(self, key: str) -> bytes:
        with self._typed_errors(key):
            return self._path_of(key).read_bytes()

    def get_range(self, key: str, start: int, length: int) -> bytes:
        with self._typed_errors(key), open(self._path_of(key), "rb") as file:
            file.seek(start)
            return file.read(max(0, min(length, os.fstat(file.fileno()).st_size - start)))

    def list(self, prefix: str = "") -> list[str]:
        base = str(self._root / self.prefix)
        folder = self._root / self.prefix / prefix.rpartition("/")[0]
        with self._typed_errors(prefix or "."):
            found: FileNames = []
            for place, names in self._walk_files(folder):
                below = "" if place == base else os.path.relpath(place, base).replace(os.sep, "/") + "/"
                found += (below + name for name in names if (below + name).startswith(prefix))
            return sorted(found)

    def sizes(self) -> dict[str, int]:
        found = {}
        for key in self.list():
            with suppress(FileNotFoundError):  # deleted meanwhile
                found[key] = os.path.getsize(self._path_of(key))
        return found

    def delete(self, key: str) -> None:
        with self._typed_errors(key):
            self._path_of(key).unlink(missing_ok=True)

    def under(self, prefix: str) -> Self:
        seen = copy(self)  # nothing is asked of the disk, which may be away
        seen.prefix = self._full_key(prefix)
        return seen

    def _path_of(self, key: str) -> Path:
        return self._root / self._full_key(key)

    def _walk_files(self, folder: Path) -> Iterator[tuple[str, FileNames]]:
        for place, folders, names in os.walk(folder, onerror=_unless_absent):
            folders[:] = [name for name in folders if place != str(self._root) or name != TEMPORARY]
            yield place, names

    @contextmanager
    def _synced_draft(self, target: Path, pieces: Iterable[tuple[int, Data]]) -> Iterator[Path]:
        """A synced temporary file with the data, gone afterwards unless it was renamed; the target's
        folder exists.
        """
        self._lead_to(target.parent)
        self._temporary.mkdir(exist_ok=True)
        file = self._temporary / uuid.uuid4().hex
        try:
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            try:
                with suppress(OSError):  # a file system without locks
                    fcntl.flock(descriptor, fcntl.LOCK_EX)
                for at, data in pieces:
                    _write_at(descriptor, at, parts(data))
                os.fsync(descriptor)
                yield file
            finally:
                os.close(descriptor)
        finally:
            file.unlink(missing_ok=True)

    def _lead_to(self, folder: Path) -> None:
        """Make it; at its first use every name on the way to it is synced, whoever made it."""
        folder.mkdir(parents=True, exist_ok=True)
        if folder in self._durable:
            return
        for above in folder.parents[: len(folder.relative_to(self._root).parts)]:
            _sync_folder(above)
        self._durable.add(folder)

    def _sweep_abandoned(self) -> None:
        """Remove what processes that died in mid write have left. Wall clocks jump, so age alone is no
        proof.
        """
        for file in self._temporary.iterdir():
            with suppress(FileNotFoundError):
                if time.time() - file.stat().st_mtime > ABANDONED_SECONDS and not _is_locked(file):
                    file.unlink()

    @contextmanager
    def _typed_errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise ObjectNotFound(f"{self.url}: {what} does not exist") from error
        except PermissionError as error:
            raise StoreUnavailable(
                f"{self.url}: {what}: {error.strerror}", "Let the services' user write there"
            ) from error
        except OSError as error:
            if error.errno in _FULL:
                raise StoreFull(f"{self.url}: {what}: {error.strerror}") from error
            raise StoreUnavailable(f"{self.url}: {what}: {error.strerror}") from error


def _write_at(descriptor: int, at: int, rest: list[memoryview]) -> None:
    """And have the disk begin with what is large, so that less is left to wait for in the end."""
    begin = at
    while rest:
        written = os.pwritev(descriptor, rest[:IO_VECTOR], at)
        at += written
        while rest and written >= len(rest[0]):
            written -= len(rest.pop(0))
        if written:
            rest[0] = rest[0][written:]
    if _begin_writing is not None and at - begin >= EARLY_BYTES:
        _begin_writing(descriptor, ctypes.c_int64(begin), ctypes.c_int64(at - begin), _WRITE)


def _make_folder(folder: Path) -> None:
    """With all folders above it, each durable in its parent."""
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        _sync_folder(folder.parent)


def _is_locked(file: Path) -> bool:
    """Whether a living process writes it: a lock ends with its process."""
    descriptor = os.open(file, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno == errno.EWOULDBLOCK
    finally:
        os.close(descriptor)
    return False


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unless_absent(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error
