"""Following epochs: from the recovery coordinator's ``Adopt``, and on the shard's own account when it hears of a newer one.

An epoch says where blocks come from only relative to the one before, so none may be left out; those that were missed are read
from the store.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Lock

from scar import codec
from scar.errors import Fenced, NotServing, ObjectNotFound
from scar.placement import Epoch
from scar.tables import Job
from scar.v1 import ps_pb2, types_pb2
from scar_ps.engine import Engine
from scar_ps.loader import Loader
from scar_ps.shard import Shard
from scar_runtime.heart import Heart
from scar_runtime.records import get_record, newest, numbered
from scar_runtime.store import Store

EPOCHS = "epochs"

_log = logging.getLogger(__name__)


class Epochs:
    """``dismissed`` is told when an epoch has excluded this shard for good."""

    def __init__(
        self,
        shard: Shard,
        engine: Engine,
        loader: Loader,
        store: Store,
        heart: Heart,
        dismissed: Callable[[Fenced], None],
    ) -> None:
        self._shard, self._engine, self._loader = shard, engine, loader
        self._store, self._heart, self._dismissed = store, heart, dismissed
        self._lock = Lock()

    def adopt(self, epoch: Epoch, job: Job, timeout: float) -> ps_pb2.AdoptReply:
        """Follow this epoch, and first those before it that are missing."""
        shard = self._shard
        with self._lock:
            if not self._engine.call(lambda: shard.bridged(epoch, job), timeout, changes=False):
                for earlier in self._missing(epoch, job):
                    self._follow(earlier, job, timeout)
            self._follow(epoch, job, timeout)
        return self._engine.call(
            lambda: ps_pb2.AdoptReply(epoch=shard.number, loading=shard.holdings.loading), timeout, changes=False
        )

    def catch_up(self, timeout: float) -> None:
        """Read the newest epoch from the store and follow it. Raises errors of the store."""
        job = self._shard.job
        if job is None:
            return
        store = self._store.under(job.name)
        number = newest(store, EPOCHS)
        if number > self._shard.number:
            self.adopt(self._read(store, number), job, timeout)
        self._shard.heard = min(self._shard.heard, self._shard.number)

    def _missing(self, epoch: Epoch, job: Job) -> list[Epoch]:
        """Epochs between the newest known and this one; for a shard that knows none, those that it is part of."""
        store, found = self._store.under(job.name), []
        for number in range(epoch.number - 1, self._shard.number, -1):
            try:
                earlier = self._read(store, number)
            except ObjectNotFound as error:
                raise NotServing(f"epoch {number} is missing in the store: {error.message}") from error
            if self._shard.number == 0 and earlier.shard_index(self._shard.member.key) < 0:
                break
            found.append(earlier)
        return found[::-1]

    @staticmethod
    def _read(store: Store, number: int) -> Epoch:
        return codec.epoch_from_proto(get_record(store, numbered(EPOCHS, number), types_pb2.Epoch))

    def _follow(self, epoch: Epoch, job: Job, timeout: float) -> None:
        shard, before = self._shard, self._shard.number
        loads = self._engine.call(lambda: shard.adopt(epoch, job), timeout)
        self._heart.epoch = shard.number
        if shard.dismissed:
            self._dismissed(Fenced(shard.dismissed))
            return
        self._loader.submit(job, loads)
        if shard.number > before:
            blocks = sum(len(store) for store in shard.view.tables.values())
            loading = sum(len(load.ids) for load in loads)
            _log.info("epoch.adopted", extra={"cause": epoch.cause, "blocks": blocks, "loading": loading})
