"""Keeps the store small while a coordinator leads: compaction, then garbage collection, again and again."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from scar.errors import ObjectNotFound, ScarError
from scar.placement import Epoch
from scar.v1.recovery_pb2 import FinishedRecord
from scar_checkpoint.compactor import Compactor
from scar_checkpoint.core.events import ObjectsCompacted
from scar_checkpoint.garbage_collector import GarbageCollector
from scar_checkpoint.round_driver import RoundDriver
from scar_runtime.checkpoint.running_checkpoint import RunningCheckpoint
from scar_runtime.store import Store
from scar_runtime.store.layout import finished_key
from scar_runtime.store.records import get_record

PERIOD = 2.0  # seconds between looks at what can be rewritten and deleted
# a manifest that an epoch restores from is kept so long after that epoch, and while it is the newest
LOADING_SECONDS = 120.0

_log = logging.getLogger("scar_checkpoint")


class StoreMaintenance:
    """``store``: the job's. One thread runs it; another one tells it of epochs."""

    def __init__(
        self, store: Store, driver: RoundDriver, compactor: Compactor, collector: GarbageCollector
    ) -> None:
        self._store = store
        self._driver = driver
        self._compactor = compactor
        self._collector = collector
        self._lock = threading.Lock()
        # manifest -> when an epoch that restores from it was seen last
        self.restoring: dict[int, float] = {}
        self._finished = FinishedRecord()

    def note_epoch(self, epoch: Epoch) -> None:
        """Its blocks may be restored from its manifest for a while."""
        with self._lock:
            self.restoring[epoch.manifest] = time.monotonic()

    def run(self, ended: threading.Event) -> None:
        """Compact and collect, again and again, while the store answers."""
        while not ended.wait(PERIOD):
            with self._driver.lock:
                core = self._driver.core
                running = core.chain.running
                rewrite = core.chain.rewrite
                epoch = core.epoch
            if not running.manifest.number or epoch is None:
                continue
            if rewrite is None:
                self._attempt("compaction", partial(self._compact, running, epoch.number))
            self._attempt("collection", partial(self._collect, epoch))

    @staticmethod
    def _attempt(what: str, work: Callable[[], None]) -> None:
        """Each by itself: what cannot be rewritten, since it is damaged, must not keep what is dead."""
        try:
            work()
        except ScarError as error:
            _log.warning("maintenance.failed", extra={"step": what, "reason": str(error)})

    def _compact(self, running: RunningCheckpoint, epoch: int) -> None:
        rewrite = self._compactor.compact_objects(running, epoch)
        if rewrite is not None:
            _log.info("compaction.written", extra={"objects": len(rewrite.old), "bytes": rewrite.ref.bytes})
            self._driver.post(ObjectsCompacted(rewrite))

    def _collect(self, epoch: Epoch) -> None:
        serving = {epoch.manifest, *epoch.restoring}
        protected = serving | self._restored_lately() | self._final_manifest(epoch.finished)
        deleted = self._collector.collect_garbage(protected)
        _log.debug("garbage.deleted", extra={"objects": len(deleted)})

    def _restored_lately(self) -> set[int]:
        """Manifests from which blocks may still be loaded, whatever the newest epoch says. Others are
        forgotten.
        """
        since = time.monotonic() - LOADING_SECONDS
        with self._lock:
            self.restoring = {number: seen for number, seen in self.restoring.items() if seen > since}
            return set(self.restoring)

    def _final_manifest(self, finished: int) -> set[int]:
        """The manifest that a job which has finished with this epoch is known by. Raises store errors."""
        if finished and self._finished.number != finished:
            with suppress(ObjectNotFound):
                self._finished = get_record(self._store, finished_key(finished), FinishedRecord)
        return {self._finished.manifest} if finished and self._finished.number == finished else set()
