"""Keeps the store small, in the background: rewrites mostly dead objects as one, and deletes what no manifest needs.

Deleting never endangers a recovery: kept are the last K manifests, the newest consistent one when the job recovers by
rolling back, those that a recent epoch restores from, and for a while each that somebody may just have read.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from scar.errors import CorruptCheckpoint, ObjectNotFound
from scar.tables import Job
from scar.v1.checkpoint_pb2 import Manifest
from scar_checkpoint.retention import compact_key, garbage, window
from scar_checkpoint.rounds import Rewrite
from scar_runtime.objects import Group, Payload, encode_object, object_ref, read_blocks, read_header
from scar_runtime.records import numbered, numbers
from scar_runtime.running import MANIFESTS, Headers, RunningCheckpoint, read_manifest
from scar_runtime.store import Store


class Keeper:
    """``store`` is the job's; ``author``: this coordinator's member key; ``grace`` in seconds. For one thread."""

    def __init__(
        self, store: Store, job: Job, author: str, headers: Headers, grace: float, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._store, self._job, self._author, self._headers = store, job, author, headers
        self._grace, self._now = grace, now
        self._known: dict[int, Manifest] = {}
        self._left: dict[int, float] = {}  # manifest -> when it was first seen to be beyond the last K

    def compact(self, running: RunningCheckpoint, epoch: int) -> Rewrite | None:
        """Write the live blocks of mostly dead objects as one object, when that is worth while. Raises store errors."""
        picked = set(running.plan_compaction())
        if not picked:
            return None
        groups: list[tuple[Group, Payload]] = []
        for table in self._job.tables:
            for origin in running.origins(table.name, np.arange(table.blocks, dtype=np.uint32)):
                if origin.index in picked:
                    ref, header = running.objects[origin.index], running.headers[origin.index]
                    payload = read_blocks(self._store, ref, header, self._job, table.name, origin.group.ids)
                    groups.append((origin.group, payload))
        encoded = encode_object(self._job, groups)
        number = running.manifest.number
        key = compact_key(number, self._author)
        self._store.put(key, encoded.parts)
        ref = object_ref(key, encoded, [group for group, _ in groups], self._author, epoch, running.manifest.round)
        old, base = (running.objects[index].key for index in picked), (one.key for one in running.objects)
        return Rewrite(number, frozenset(old), frozenset(base), ref, read_header(self._store, ref, self._job))

    def collect(self, protected: set[int]) -> list[str]:
        """Delete what nobody needs; returns the keys. ``protected``: manifests of recent recoveries. Raises store errors."""
        existing = numbers(self._store, MANIFESTS)
        self._known = {number: manifest for number, manifest in self._known.items() if number in existing}
        self._left = {number: left for number, left in self._left.items() if number in existing}
        remaining = self._remaining(existing, protected)
        if not remaining:
            return []
        deleted = [
            numbered(MANIFESTS, number) for number in existing if number < max(remaining) and self._expired(number, remaining)
        ]
        kept = {number for number in existing if numbered(MANIFESTS, number) not in deleted}
        readable = {number: manifest for number in kept if (manifest := self._read(number)) is not None}
        deleted += garbage(self._store.list("objects/"), readable)
        for key in deleted:  # manifests first: what is listed nowhere is missed by nobody
            self._store.delete(key)
        self._headers.keep({ref.key for manifest in readable.values() for ref in manifest.objects})
        return deleted

    def _remaining(self, existing: list[int], protected: set[int]) -> set[int]:
        """Manifests that stay whatever their age."""
        found: list[int] = []
        full = 0
        want_full = self._job.strategy.rollback
        for number in reversed(existing):
            if len(found) >= self._job.checkpoint.keep and (full or not want_full):
                break
            manifest = self._read(number)
            if manifest is None:
                continue
            found.insert(0, number)
            full = full or (number if manifest.full else 0)
        return (
            window(found, self._job.checkpoint.keep) | ({full} if want_full and full else set()) | (protected & set(existing))
        )

    def _expired(self, number: int, remaining: set[int]) -> bool:
        if number in remaining:
            self._left.pop(number, None)
            return False
        return self._now() - self._left.setdefault(number, self._now()) >= self._grace

    def _read(self, number: int) -> Manifest | None:
        """None: it is damaged, or gone."""
        if number not in self._known:
            try:
                self._known[number] = read_manifest(self._store, number)
            except (CorruptCheckpoint, ObjectNotFound):
                return None
        return self._known[number]
