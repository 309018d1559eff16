"""What is done to the disk under a directory store: it goes away, fills up, and what is on it rots."""

from __future__ import annotations

import contextlib
import os
import resource
import zlib
from collections.abc import Callable, Collection
from pathlib import Path

from scar.errors import ScarError
from scar.tables import Job
from scar_runtime.checkpoint.manifest import ObjectRef
from scar_runtime.checkpoint.running_checkpoint import load_newest
from scar_runtime.store import Store
from scar_runtime.store.directory import TEMPORARY
from scar_runtime.store.layout import EPOCHS, MANIFESTS, numbered
from scar_runtime.store.records import newest

NONSENSE = (
    b"<html><head><title>502 Bad Gateway</title></head><body>upstream sent too big header</body></html>\n"
)
GARBLED = (MANIFESTS, EPOCHS)  # of each the newest record


class StoreDisk:
    """``folder``: where the store's folder ``store`` is, as a link to ``disk``.

    ``damaged``: keys of objects, in the job.
    """

    def __init__(self, folder: Path) -> None:
        self._link = folder / "store"
        self._root = folder / "disk"
        self._spoiled: dict[Path, bytes] = {}
        self._limited: list[int] = []
        self.damaged: set[str] = set()

    def create_link(self) -> None:
        self._root.mkdir(parents=True, exist_ok=True)
        if not self._link.is_symlink():
            self._link.symlink_to("disk")  # so that a fault can take the store away in one step

    # --- gone

    def take_away(self) -> None:
        """In one step a file stands where the link to the folder was, so that nobody can make a new one."""
        draft = self._link.with_suffix(".draft")
        draft.touch()
        draft.replace(self._link)

    def bring_back(self) -> None:
        """The link is there again. Does nothing when it is."""
        draft = self._link.with_suffix(".draft")
        draft.unlink(missing_ok=True)
        draft.symlink_to("disk")
        draft.replace(self._link)

    # --- full

    def fill_up(self, pids: Collection[int]) -> None:
        """These processes cannot write to any file (EFBIG).

        A full disk that needs no rights and harms nobody else.
        """
        for pid in pids:
            with contextlib.suppress(OSError):  # it has just died
                _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE)
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, most))
                self._limited.append(pid)

    def free_space(self) -> None:
        while self._limited:
            pid = self._limited.pop()
            with contextlib.suppress(OSError):
                _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE)
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (most, most))

    # --- damaged

    def corrupt_objects(self, store: Store, job: Job) -> None:
        """Flip a bit of a value in each object that the newest manifest needs."""

        def flip_bit(path: Path, ref: ObjectRef) -> None:
            at = ref.header_bytes + zlib.crc32(path.name.encode()) % (ref.bytes - ref.header_bytes)
            with path.open("r+b") as file:
                byte = os.pread(file.fileno(), 1, at)
                os.pwrite(file.fileno(), bytes([byte[0] ^ 0x10]), at)

        self._damage_objects(store, job, flip_bit)

    def truncate_objects(self, store: Store, job: Job) -> None:
        """The second half of each of these objects is gone."""

        def cut_half(path: Path, ref: ObjectRef) -> None:
            os.truncate(path, ref.bytes // 2)

        self._damage_objects(store, job, cut_half)

    def _damage_objects(self, store: Store, job: Job, damage: Callable[[Path, ObjectRef], None]) -> None:
        try:
            running = load_newest(store, job)
        except ScarError:
            return  # nothing is there to be damaged
        for ref in running.objects:
            with contextlib.suppress(FileNotFoundError):  # it was collected at this moment
                damage(self._root / job.name / ref.key, ref)
                self.damaged.add(ref.key)

    def garble_records(self, store: Store, job: Job) -> None:
        """Who reads the newest manifest or epoch gets what a broken gateway answers."""
        for prefix in GARBLED:
            with contextlib.suppress(ScarError, OSError):
                path = self._root / job.name / numbered(prefix, newest(store, prefix))
                self._spoiled[path] = path.read_bytes()
                _replace_file(path, NONSENSE)

    def restore_records(self) -> None:
        """What was garbled is as it was; what was written over it meanwhile stays."""
        while self._spoiled:
            path, data = self._spoiled.popitem()
            with contextlib.suppress(FileNotFoundError):
                if path.read_bytes() == NONSENSE:
                    _replace_file(path, data)


def _replace_file(path: Path, data: bytes) -> None:
    """In one step, as a store does."""
    draft = path.parents[2] / TEMPORARY / f"chaos-{path.parent.name}-{path.name}"
    draft.parent.mkdir(exist_ok=True)
    draft.write_bytes(data)
    draft.replace(path)
