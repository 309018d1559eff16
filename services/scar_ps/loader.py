"""Fetches what an epoch gave to this shard, in the background: x(0), or the newest values in the running checkpoint.

A load is tried until it succeeds or a newer epoch has moved its blocks elsewhere; requests for these blocks wait meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import numpy as np

from scar.blocks import Array
from scar.errors import CorruptCheckpoint, ScarError
from scar.placement import Source
from scar.tables import Job, Table
from scar.transport import Backoff
from scar_ps.blockstore import Contents
from scar_ps.engine import Engine
from scar_ps.holdings import Load
from scar_ps.shard import Shard
from scar_runtime.objects import read_blocks
from scar_runtime.running import Headers, read_manifest
from scar_runtime.store import Store

STEP_SECONDS = 60.0  # for the apply thread to take a load

_log = logging.getLogger(__name__)


class Loader:
    """``problem``: why a load has to be tried again, in words; empty: nothing is wrong."""

    def __init__(self, shard: Shard, engine: Engine, store: Store, threads: int, fail: Callable[[BaseException], None]) -> None:
        self._shard, self._engine, self._store, self._fail = shard, engine, store, fail
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="load")
        self._closed = Event()
        self.problem = ""

    def submit(self, job: Job, loads: Sequence[Load]) -> None:
        """Start these loads."""
        headers = Headers(self._store.under(job.name), job)  # shared by the loads of one epoch
        for load in loads:
            self._pool.submit(self._run, job, headers, load)

    def close(self) -> None:
        self._closed.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _run(self, job: Job, headers: Headers, load: Load) -> None:
        try:
            self._carry_out(job, headers, load)
        except Exception as error:
            self._fail(error)

    def _carry_out(self, job: Job, headers: Headers, load: Load) -> None:
        backoff = Backoff(first=0.1, most=2.0)
        while not self._closed.is_set():
            if not self._engine.call(lambda: self._shard.wanted(load), STEP_SECONDS, changes=False):
                return
            try:
                contents = read(job, headers, load)
            except ScarError as error:
                self.problem = f"{len(load.ids)} blocks of table {load.table} cannot be loaded: {error.message}"
                _log.warning("load.failed", extra={"table": load.table, "blocks": len(load.ids), "reason": str(error)})
                self._closed.wait(backoff.next())
                continue
            self._install(load, contents)
            return

    def _install(self, load: Load, contents: Contents) -> None:
        self._engine.call(lambda: self._shard.install(load, contents), STEP_SECONDS)
        self.problem = ""


def read(job: Job, headers: Headers, load: Load) -> Contents:
    """The contents of a load. Raises errors of the store, and :class:`CorruptCheckpoint`."""
    if load.source is Source.INITIAL:
        table = job.table(load.table)
        return Contents(table.initial(job.seed, load.ids, _given(headers.store, table)))
    manifest = read_manifest(headers.store, load.manifest)
    ref = next((ref for ref in manifest.objects if ref.key == load.object_key), None)
    if ref is None:
        raise CorruptCheckpoint(f"manifest {load.manifest} does not name {load.object_key}")
    payload = read_blocks(headers.store, ref, headers.get([ref])[0], job, load.table, load.ids)
    return Contents(payload.values, payload.slots, payload.steps)


def _given(store: Store, table: Table) -> Array | None:
    return np.frombuffer(store.get(table.init.key), table.dtype) if table.init.kind == "given" else None
