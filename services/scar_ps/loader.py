"""Makes the loads that the shard starts: x(0), or the newest values in the running checkpoint.

What has to be loaded, and when a load that failed is tried again, the shard decides
(:mod:`scar_ps.core.loads`); here each load is made once, and its result handed in.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from threading import Lock

from scar.blocks import Ids
from scar.errors import CorruptCheckpoint, NotServing, ObjectNotFound, ScarError
from scar.placement import BlockSource
from scar.tables import Job
from scar.wire import tracing
from scar_ps.apply_thread import ApplyThread
from scar_ps.core.actions import StartLoad
from scar_ps.core.block_data import BlockContents, BlockLoad
from scar_ps.core.core_state import CoreState
from scar_ps.core.events import BlocksLoaded, Event, LoadFailed
from scar_runtime.checkpoint.damage import unreadable_in
from scar_runtime.checkpoint.header_cache import HeaderCache
from scar_runtime.checkpoint.initial_arrays import read_initial
from scar_runtime.checkpoint.manifest import Manifest, ObjectRef
from scar_runtime.checkpoint.manifest_codec import read_manifest
from scar_runtime.checkpoint.object_reader import read_blocks
from scar_runtime.checkpoint.objects import ObjectHeader
from scar_runtime.store import Store

_log = logging.getLogger(__name__)


class Loader:
    """``store`` is the cluster's; ``threads``: loads that are made at the same time.

    ``fail`` hears of errors that are not expected.
    """

    def __init__(
        self, state: CoreState, store: Store, threads: int, fail: Callable[[BaseException], None]
    ) -> None:
        self._state = state
        self._store = store
        self._fail = fail
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="load")
        self._lock = Lock()
        self._computing = Lock()  # of x(0): threads that wait for no store only keep others waiting
        self._closed = False
        self._sources: _Sources | None = None  # shared by the loads of one epoch

    def start_load(self, action: StartLoad, apply_thread: ApplyThread) -> None:
        """Returns at once. The shard hears of the result from ``apply_thread``."""
        with self._lock:  # nobody submits to a pool that is shut down
            if not self._closed:
                self._pool.submit(self._run_load, action.load, apply_thread)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _run_load(self, load: BlockLoad, apply_thread: ApplyThread) -> None:
        try:
            with tracing.trace_span(f"load {len(load.ids)} blocks of {load.table}", ("epoch", load.epoch)):
                made = self._make_load(load)
            apply_thread.post(made)
        except Exception as error:
            self._fail(error)

    def _make_load(self, load: BlockLoad) -> Event:
        sources: _Sources | None = None
        try:
            job = self._require_job()
            sources = self._sources_of(job, load.epoch)
            with self._computing if sources.draws(load) else nullcontext():
                return BlocksLoaded(load, read_load(job, sources, load))
        except ScarError as error:
            about = {"table": load.table, "blocks": len(load.ids), "reason": str(error)}
            _log.warning("load.failed", extra=about)
            unreadable = None
            if sources is not None and isinstance(error, CorruptCheckpoint | ObjectNotFound):
                unreadable = _find_unreadable(sources.headers, load)
            return LoadFailed(load, error.message, unreadable)

    def _require_job(self) -> Job:
        if self._state.job is None:
            raise NotServing("this shard has no job yet")
        return self._state.job

    def _sources_of(self, job: Job, epoch: int) -> _Sources:
        with self._lock:
            if self._sources is None or self._sources.epoch != epoch:
                self._sources = _Sources(epoch, HeaderCache(self._store.under(job.name), job))
            return self._sources


@dataclass(eq=False)
class _Sources:
    """What the pieces of an epoch's loads read of the store in common. ``manifest``: once one has read it;
    it never changes.
    """

    epoch: int
    headers: HeaderCache
    manifest: Manifest | None = None
    reading: defaultdict[str, Lock] = field(default_factory=lambda: defaultdict(Lock))  # by key of an object

    def find_object(self, load: BlockLoad) -> ObjectRef:
        manifest = self.manifest
        if manifest is None or manifest.number != load.manifest:
            manifest = self.manifest = read_manifest(self.headers.store, load.manifest)
        return _named_object(manifest, load)

    def draws(self, load: BlockLoad) -> bool:
        """Whether x(0) has to be drawn for it, also as what some rows have changed of."""
        if load.source is BlockSource.INITIAL:
            return True
        sections = self.read_header(self.find_object(load)).sections
        return any(one.counts is not None and one.baseline is None for one in sections)

    def read_header(self, ref: ObjectRef) -> ObjectHeader:
        """The pieces that come from one object wait for the first to read it."""
        with self.reading[ref.key]:
            return self.headers.find(ref)


def read_load(job: Job, sources: _Sources, load: BlockLoad) -> BlockContents:
    """The contents of a load. Raises errors of the store, and :class:`CorruptCheckpoint`."""
    headers = sources.headers
    if load.source is BlockSource.INITIAL:
        table = job.table(load.table)
        given = read_initial(headers.store, table, load.ids)
        return BlockContents(table.initial(job.seed, load.ids, given), table.initial_slots(load.ids, given))
    ref = sources.find_object(load)
    payload = read_blocks(headers.store, ref, sources.read_header(ref), job, load.table, load.ids)
    return BlockContents(payload.values, payload.slots, payload.steps)


def _named_object(manifest: Manifest, load: BlockLoad) -> ObjectRef:
    ref = next((ref for ref in manifest.objects if ref.key == load.object_key), None)
    if ref is None:
        raise CorruptCheckpoint(f"manifest {load.manifest} does not name {load.object_key}")
    return ref


def _find_unreadable(headers: HeaderCache, load: BlockLoad) -> Ids | None:
    """Look again, block by block: what was garbled on its way is whole in the store. None: nobody knows."""
    if load.source is BlockSource.INITIAL:
        return load.ids[:0]  # there is nothing else than x(0)
    try:
        ref = _named_object(read_manifest(headers.store, load.manifest), load)
    except (CorruptCheckpoint, ObjectNotFound):
        return load.ids
    except ScarError:
        return None
    try:
        return unreadable_in(headers, ref, load.table, load.ids)
    except ScarError:
        return None
