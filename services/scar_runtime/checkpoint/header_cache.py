"""Headers of objects of the running checkpoint, each read once: objects are never changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from scar.errors import CorruptCheckpoint, ObjectNotFound
from scar.tables import Job
from scar_runtime.checkpoint.header_reader import read_header
from scar_runtime.checkpoint.manifest import ObjectRef
from scar_runtime.checkpoint.object_reader import THREADS
from scar_runtime.checkpoint.objects import ObjectHeader
from scar_runtime.store import Store
from scar_runtime.store.records import reread


class HeaderCache:
    """Headers of a job's objects, read in parallel and kept by key. ``store`` is the job's. Safe to use
    from any thread.
    """

    def __init__(self, store: Store, job: Job) -> None:
        self.store = store
        self.job = job
        self._known: dict[str, ObjectHeader] = {}

    def get(self, refs: Sequence[ObjectRef]) -> list[ObjectHeader]:
        """Headers of these objects, in order. Raises what
        :func:`scar_runtime.checkpoint.header_reader.read_header` raises.
        """
        known = self._read_missing(refs, self._read_header)
        return [known[ref.key] for ref in refs]

    def find(self, ref: ObjectRef) -> ObjectHeader:
        """Of one object; raises as :meth:`get`."""
        return self.get([ref])[0]

    def get_readable(self, refs: Sequence[ObjectRef]) -> list[ObjectHeader | None]:
        """The same; None for a header that is damaged or gone."""
        known = self._read_missing(refs, self._read_if_whole)
        return [known.get(ref.key) for ref in refs]

    def _read_missing(
        self, refs: Sequence[ObjectRef], read: Callable[[ObjectRef], ObjectHeader | None]
    ) -> dict[str, ObjectHeader]:
        known = self._known
        missing = [ref for ref in refs if ref.key not in known]
        if missing:
            with ThreadPoolExecutor(min(THREADS, len(missing))) as pool:
                found = zip(missing, pool.map(read, missing), strict=True)
                known = known | {ref.key: header for ref, header in found if header is not None}
            self._known = known  # replaced, never changed: another thread may be reading
        return known

    def _read_header(self, ref: ObjectRef) -> ObjectHeader:
        return read_header(self.store, ref, self.job)

    def _read_if_whole(self, ref: ObjectRef) -> ObjectHeader | None:
        try:
            return reread(lambda: self._read_header(ref))
        except (CorruptCheckpoint, ObjectNotFound):
            return None

    def forget(self, key: str) -> None:
        """Read this one again, should it be asked for: what the store has may be damaged by now."""
        self._known = {known: header for known, header in self._known.items() if known != key}

    def keep(self, keys: set[str]) -> None:
        """Forget all others."""
        self._known = {key: header for key, header in self._known.items() if key in keys}
