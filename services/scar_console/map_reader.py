"""Reads from the store what is saved of a job, and how it went so far, beside the looks at its services,
which wait for no store.
"""

from __future__ import annotations

from collections.abc import Callable

from scar.errors import ScarError
from scar.v1.types_pb2 import JobSpec
from scar.wire.codec import job_from_proto
from scar.wire.epoch_messages import epoch_from_proto
from scar_admin.status import ClusterStatus
from scar_console.block_map import BlockMap, draw_map
from scar_runtime.checkpoint.header_cache import HeaderCache
from scar_runtime.checkpoint.running_checkpoint import load_newest
from scar_runtime.progress_history import ProgressHistory
from scar_runtime.store import Store
from scar_runtime.store.history_log import HistoryLog


class BlockMapReader:
    """``open_store``: the one with all jobs; None: it cannot be read from here. For one thread."""

    def __init__(self, open_store: Callable[[], Store | None]) -> None:
        self._open_store = open_store
        self._job = JobSpec()
        self._headers: HeaderCache | None = None
        self._known = (0, 0)  # manifest and epoch of the last map
        self._told_history = False

    def read(self, status: ClusterStatus) -> BlockMap | None:
        """The newest map; None: there is nothing new, or nothing that can be read now."""
        job = status.job
        saved = status.checkpoint
        if job is None or status.epoch is None or saved is None or not saved.manifest:
            return None
        fresh = (saved.manifest, status.number)
        try:
            headers = self._headers_of(job)
            if headers is None or fresh == self._known:
                return None
            running = load_newest(headers.store, headers.job, headers)
            headers.keep({ref.key for ref in running.manifest.objects})
        except ScarError:  # the store is away, or was cleaned up meanwhile: as it was, until the next time
            return None
        self._known = fresh
        return draw_map(running, epoch_from_proto(status.epoch))

    def read_history(self, status: ClusterStatus) -> ProgressHistory | None:
        """How the run went so far, as the coordinators have written it; said once."""
        if status.job is None or self._told_history:
            return None
        try:
            headers = self._headers_of(status.job)
            history = HistoryLog(headers.store).read() if headers is not None else None
        except ScarError:  # the next time
            return None
        self._told_history = True
        return history

    def _headers_of(self, job: JobSpec) -> HeaderCache | None:
        """Of this job; None: its store cannot be read from here."""
        if self._headers is None or job != self._job:
            store = self._open_store()
            self._job = job
            self._known = (0, 0)
            self._headers = HeaderCache(store.under(job.name), job_from_proto(job)) if store else None
        return self._headers
