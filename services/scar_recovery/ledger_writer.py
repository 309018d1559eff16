"""The failure ledger of one leadership: what failures cost, told from many threads, made durable by one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise

from scar.errors import ScarError
from scar.placement import Epoch
from scar.v1 import recovery_pb2
from scar_recovery import metrics
from scar_recovery.codec import reroute_report_from_proto
from scar_recovery.core.actions import CommitEpoch
from scar_recovery.core.ledger import Ledger
from scar_recovery.recovery_store import RecoveryStore
from scar_runtime.failure_records import FailureRecord
from scar_runtime.store.failure_codec import failure_from_proto, failure_to_proto

PAGE = 256  # records in one answer
PAGE_BYTES = 16 << 20


class LedgerWriter:
    """``now``: seconds of one monotonic clock; ``wall``: seconds since 1970. Safe to use from any thread."""

    def __init__(
        self,
        store: RecoveryStore,
        author: str,
        now: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._author = author
        self._now = now
        self._wall = wall
        self._ledger = Ledger(store.job)
        self._lock = threading.Lock()  # of the ledger in memory
        self._writing = threading.Lock()  # who has it writes the newest copies
        # newest epoch of which every shard serves all its blocks, and the highest open clock then
        self._loaded = (0, 0)
        self._unread = False  # a former leader may have taken reports until our first epoch existed

    def take_over(self, records: Sequence[recovery_pb2.FailureRecord], history: Sequence[Epoch]) -> int:
        """Go on from what earlier leaders wrote. Returns the highest number of a record."""
        ledger = Ledger(self._store.job, map(failure_from_proto, records))
        for before, epoch in pairwise(history):
            ledger.rebuild_record(before, epoch, self._wall())
            ledger.follow_epoch(epoch, None)
        with self._lock:
            self._ledger = ledger
            return ledger.newest

    # --- what happens

    def record_epoch(
        self, before: Epoch | None, epoch: Epoch, action: CommitEpoch | None, seconds: float
    ) -> None:
        """An epoch of ours exists; ``seconds``: to plan and create it.

        ``action`` None: it is from an attempt whose answer was lost.
        """
        self._unread |= before is not None and before.author != epoch.author
        with self._lock:
            if action is not None:
                self._ledger.open_record(action.intent, action.failures, seconds, self._wall())
            elif before is not None:
                self._ledger.rebuild_record(before, epoch, self._wall())
            self._ledger.follow_epoch(epoch, self._now())
            if self._loaded[0] == epoch.number:  # the shards were faster than we
                self._finish_loading(*self._loaded)

    def record_loaded(self, number: int, clock: int) -> None:
        """Every shard of this epoch serves all its blocks. ``clock``: the highest open clock."""
        with self._lock:
            self._loaded = (number, clock)
            self._finish_loading(number, clock)

    def _finish_loading(self, number: int, clock: int) -> None:
        """With the lock."""
        _count_repairs(self._ledger.finish_loading(self._now(), clock, number))

    def record_clocks(self, key: str, adopted: Mapping[int, int]) -> None:
        """A shard's open clock when each of these epochs came to it, perhaps before the ledger has them."""
        with self._lock:
            self._ledger.record_clocks(key, adopted)

    def accept_report(self, message: recovery_pb2.RerouteReport) -> None:
        """What an epoch cost one worker; durable when it returns.

        Which pushes are gone is written first: the record says who has told. Raises
        :class:`scar.errors.InvalidRequest` for a report that is malformed.
        """
        report = reroute_report_from_proto(message, self._store.job)
        with self._lock:
            number = self._ledger.awaiting_record(report)
        if number:
            self._store.write_lost_pushes(number, report.worker, message.lost)
        with self._lock:
            self._ledger.add_report(report, self._now())
        self.write()

    # --- questions

    @property
    def loading(self) -> list[str]:
        """Members whose blocks are not served again yet."""
        with self._lock:
            return self._ledger.loading

    def rollback_clocks(self) -> list[int]:
        """At which the job has gone back at a worker's request."""
        with self._lock:
            return [record.clock for record in self._ledger.records if record.rollback]

    @property
    def records(self) -> list[recovery_pb2.FailureRecord]:
        with self._lock:
            return [failure_to_proto(record) for record in self._ledger.records]

    def list_records(self, after: int, lost: bool) -> tuple[list[recovery_pb2.FailureRecord], bool]:
        """Records with higher numbers, as many as an answer holds, and whether there are more."""
        with self._lock:
            records = [record for record in self._ledger.records if record.number > after]
            found = [failure_to_proto(record) for record in records[:PAGE]]
        size = 0
        for index, record in enumerate(found):
            record.lost.extend(self._store.read_lost_pushes(record.number) if lost else [])
            size += record.ByteSize()
            if size > PAGE_BYTES and index:
                return found[:index], True
        return found, len(records) > len(found)

    # --- the store

    def write(self) -> None:
        """When it returns, everything that the ledger knew before the call is durable.

        Raises what the store raises.
        """
        with self._writing:
            self._read_again()
            with self._lock:
                records = self._ledger.take_unwritten()
            for index, record in enumerate(records):
                try:
                    self._store.write_failure(failure_to_proto(record), self._author)
                except ScarError:
                    with self._lock:
                        for left in records[index:]:
                            self._ledger.mark_unwritten(left.number)
                    raise

    def _read_again(self) -> None:
        if self._unread:
            stored = [failure_from_proto(record) for record in self._store.read_failures()]
            with self._lock:
                self._ledger.merge_stored(stored)
            self._unread = False


def _count_repairs(records: Iterable[FailureRecord]) -> None:
    for record in records:
        phases = {
            "detect": record.detect_seconds,
            "wait": record.wait_seconds,
            "commit": record.commit_seconds,
            "load": record.load_seconds,
        }
        for phase, seconds in phases.items():
            if seconds >= 0:
                metrics.PHASE_SECONDS.labels(phase).observe(seconds)
        for source, blocks in record.sources.items():
            metrics.BLOCKS.labels(source).inc(blocks)
