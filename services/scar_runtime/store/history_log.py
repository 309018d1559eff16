"""How a run went, in the store: versions that are created, never overwritten, and merged when they are read.

    history/00000002-0123456789ab     # version 2 of this recovery coordinator, with all that it knows

As in the failure log each author has versions of its own, so that a leader that wakes up takes nothing back;
who writes one deletes those that it has read or written, which are in it.
"""

from __future__ import annotations

from contextlib import suppress

from scar.errors import AlreadyExists, CorruptCheckpoint, ForgedRecord, ObjectNotFound, StoreUnavailable
from scar.v1.recovery_pb2 import HistoryRecord
from scar_runtime.progress_history import ProgressHistory
from scar_runtime.store import Store
from scar_runtime.store.layout import HISTORY, folder, history_key, history_version
from scar_runtime.store.records import create_record, get_record

READS = 8  # attempts to read versions that their author replaces meanwhile


class HistoryLog:
    """Of one job. ``store`` is the job's. For one thread at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: set[str] = set()  # keys of versions that are in the history

    def read(self) -> ProgressHistory:
        """Empty for a job without one. What is damaged or forged is left out: it is a picture, and no part of
        the model. Raises what the store raises, and :class:`StoreError` for a newer format.
        """
        for _ in range(READS):
            with suppress(ObjectNotFound):  # a newer version has just taken its place
                return self._read_versions()
        raise StoreUnavailable("the history changes faster than it can be read")

    def _read_versions(self) -> ProgressHistory:
        history = ProgressHistory()
        keys = {key for key in self._store.list(folder(HISTORY)) if history_version(key)}
        for key in sorted(keys):
            with suppress(CorruptCheckpoint, ForgedRecord):
                history.merge_record(get_record(self._store, key, HistoryRecord))
        self._known = keys
        return history

    def write(self, history: ProgressHistory, author: str) -> int:
        """Durable when it returns. Returns its bytes."""
        record = history.to_proto()
        version = max((history_version(key) or 0 for key in self._known), default=0)
        while True:
            version += 1
            key = history_key(version, author)
            try:
                create_record(self._store, key, record)
                break
            except AlreadyExists:  # from an attempt whose answer was lost
                self._known.add(key)
        for old in sorted(self._known):
            with suppress(StoreUnavailable):  # costs space until it is written again
                self._store.delete(old)
                self._known.remove(old)
        self._known.add(key)
        return record.ByteSize()
