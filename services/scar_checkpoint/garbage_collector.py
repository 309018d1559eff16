"""Garbage collection: deletes manifests that have expired, and the objects that no manifest needs.

Deleting never endangers a recovery: kept are the last K manifests, the newest consistent one when the job
recovers by rolling back, those that a recent epoch restores from, those that are pinned, and for a while each
that somebody may just have read.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from scar.errors import CorruptCheckpoint, ObjectNotFound
from scar.tables import Job
from scar_checkpoint.core.retention import garbage_objects, remaining_manifests
from scar_runtime.checkpoint.header_cache import HeaderCache
from scar_runtime.checkpoint.manifest import Manifest
from scar_runtime.checkpoint.manifest_codec import read_manifest
from scar_runtime.store import Store
from scar_runtime.store.layout import MANIFESTS, OBJECTS, folder, manifest_key
from scar_runtime.store.pins import Pins
from scar_runtime.store.records import numbers, reread


class GarbageCollector:
    """``store`` is the job's; ``grace``: seconds that a manifest beyond the last K stays. For one thread."""

    def __init__(
        self,
        store: Store,
        job: Job,
        headers: HeaderCache,
        grace: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._job = job
        self._headers = headers
        self._grace = grace
        self._now = now
        self._pins = Pins(store, now)
        self._known: dict[int, Manifest] = {}
        self._expiring: dict[int, float] = {}  # manifest -> when it was first seen to be beyond the last K

    def collect_garbage(self, protected: set[int]) -> list[str]:
        """Delete what nobody needs; returns the keys. ``protected``: manifests of recent recoveries.

        Raises store errors.
        """
        existing = numbers(self._store, MANIFESTS)
        self._forget_others(existing)
        remaining = self._remaining(existing, protected | self._pins.manifests())
        if not remaining:
            return []
        expired = [number for number in existing if self._is_expired(number, remaining)]
        readable = self._read_all(set(existing) - set(expired))
        if not readable:  # nothing says what is needed
            return []
        deleted = [manifest_key(number) for number in expired]
        deleted += garbage_objects(self._store.list(folder(OBJECTS)), readable)
        for key in deleted:  # manifests first: what is listed nowhere is missed by nobody
            self._store.delete(key)
        self._headers.keep({ref.key for manifest in readable.values() for ref in manifest.objects})
        return deleted

    def _remaining(self, existing: list[int], protected: set[int]) -> set[int]:
        """Manifests that stay whatever their age. Reads no more of them than it needs."""
        keep = self._job.checkpoint.keep
        want_full = self._job.strategy.rollback
        return remaining_manifests(existing, self._read_manifest, keep, want_full) | (
            protected & set(existing)
        )

    def _is_expired(self, number: int, remaining: set[int]) -> bool:
        if number >= max(remaining):
            return False
        if number in remaining:
            self._expiring.pop(number, None)
            return False
        return self._now() - self._expiring.setdefault(number, self._now()) >= self._grace

    def _forget_others(self, existing: list[int]) -> None:
        self._known = {number: manifest for number, manifest in self._known.items() if number in existing}
        self._expiring = {number: since for number, since in self._expiring.items() if number in existing}

    def _read_all(self, kept: set[int]) -> dict[int, Manifest]:
        readable = {}
        for number in kept:
            manifest = self._read_manifest(number)
            if manifest is not None:
                readable[number] = manifest
        return readable

    def _read_manifest(self, number: int) -> Manifest | None:
        """None: it is damaged, or gone."""
        if number not in self._known:
            try:
                self._known[number] = reread(partial(read_manifest, self._store, number))
            except (CorruptCheckpoint, ObjectNotFound):
                return None
        return self._known[number]
