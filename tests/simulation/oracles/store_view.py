"""The store as it is at any moment, read without requests, and everything that is done to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Self

from scar.errors import ObjectNotFound
from scar.tables import Job
from scar_runtime.checkpoint.header_cache import HeaderCache
from scar_runtime.checkpoint.header_reader import read_header
from scar_runtime.checkpoint.manifest import ObjectRef
from scar_runtime.checkpoint.objects import ObjectHeader
from scar_runtime.store import Store
from tests.simulation.bucket import Bucket
from tests.simulation.scheduler import Scheduler

PREFIX = "store/"  # of all keys: see tests.simulation.cluster.STORE

Told = Callable[[str, bytes | None], None]


@contextmanager
def outside(scheduler: Scheduler) -> Iterator[None]:
    """What is called here belongs to no task: no lock and no clock is a switching point."""
    current = scheduler.current
    scheduler.current = None
    try:
        yield
    finally:
        scheduler.current = current


class WatchedObjects(dict[str, bytes]):
    """The objects of a bucket. ``told``: of each change, in the middle of the request that makes it; None:
    the object is gone.
    """

    def __init__(self, objects: Mapping[str, bytes], told: Told) -> None:
        super().__init__(objects)
        self._told = told

    def __setitem__(self, key: str, body: bytes) -> None:
        super().__setitem__(key, body)
        self._told(key, body)

    def __delitem__(self, key: str) -> None:
        super().__delitem__(key)
        self._told(key, None)

    def pop(self, key: str, default: bytes | None = None) -> bytes | None:  # type: ignore[override]
        if key not in self:
            return default
        body = self[key]
        del self[key]
        return body

    def clear(self) -> None:
        for key in list(self):
            del self[key]


class StoreHistory:
    """``created``: when the object that lies there now was written. ``listeners``: of what services do."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._scheduler = bucket.network.scheduler
        self.objects = bucket.objects = WatchedObjects(bucket.objects, self._changed)
        self.created = dict.fromkeys(self.objects, self._scheduler.now)
        self.listeners: list[Told] = []

    @property
    def damaged(self) -> set[str]:
        """Keys of objects that are not as they were written, or were removed by hand."""
        return self._bucket.damaged

    def _changed(self, key: str, body: bytes | None) -> None:
        self.created.pop(key, None)
        if body is not None:
            self.created[key] = self._scheduler.now
        with outside(self._scheduler):
            for told in self.listeners:
                told(key, body)


class DirectStore(Store):
    """Reads objects that lie in memory; nothing can be written."""

    def __init__(self, objects: Mapping[str, bytes], prefix: str = PREFIX.rstrip("/")) -> None:
        super().__init__("simulated", prefix)
        self._objects = objects

    def put(self, key: str, data: object) -> None:
        raise NotImplementedError

    create = put

    def delete(self, key: str) -> None:
        raise NotImplementedError

    def get(self, key: str) -> bytes:
        try:
            return self._objects[self._full_key(key)]
        except KeyError:
            raise ObjectNotFound(f"{key} does not exist") from None

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self.get(key)[start : start + length]

    def list(self, prefix: str = "") -> list[str]:
        whole = f"{self.prefix}/{prefix}"
        return sorted(key[len(self.prefix) + 1 :] for key in self._objects if key.startswith(whole))

    def under(self, prefix: str) -> Self:
        return type(self)(self._objects, f"{self.prefix}/{prefix}")


class DirectHeaders(HeaderCache):
    """Reads headers one after the other: threads would be tasks."""

    def __init__(self, store: Store, job: Job) -> None:
        super().__init__(store, job)
        self._read: dict[str, ObjectHeader] = {}

    def get(self, refs: Sequence[ObjectRef]) -> list[ObjectHeader]:
        return [read_header(self.store, ref, self.job) for ref in refs]
