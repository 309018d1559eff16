"""Hands epochs to the shard, all from the store: those that recovery tells of, those that it has missed."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock

import numpy as np

from scar.blocks import Ids
from scar.errors import (
    CorruptCheckpoint,
    ForgedRecord,
    InvalidRequest,
    NotServing,
    ObjectNotFound,
    StaleEpoch,
    WrongJob,
)
from scar.placement import Epoch, Member
from scar.tables import Job, Table
from scar.v1 import types_pb2
from scar.wire import codec
from scar.wire.epoch_messages import epoch_from_proto
from scar_ps.apply_thread import ApplyThread
from scar_ps.core.block_memory import BlockMemory
from scar_ps.core.block_store import BlockStore
from scar_ps.core.core_state import CoreState
from scar_ps.core.epochs import AdoptedEpoch, EpochsMissing
from scar_ps.core.events import EpochReceived
from scar_runtime.process.memory import reserve_zeros, touch_pages
from scar_runtime.store import Store
from scar_runtime.store.job_records import read_job_spec
from scar_runtime.store.layout import EPOCHS, epoch_key
from scar_runtime.store.records import get_record, message_digest, newest


@dataclass(frozen=True)
class StoredEpoch:
    """As the store has it; ``digest``: of its message."""

    epoch: Epoch
    digest: bytes


class EpochSync:
    """``store`` is the cluster's; epochs are below the job's name."""

    def __init__(self, state: CoreState, apply_thread: ApplyThread, store: Store) -> None:
        self._state = state
        self._apply_thread = apply_thread
        self._store = store
        self._lock = Lock()
        self._reading = Lock()
        self._ahead: StoredEpoch | None = None  # that we have read and not adopted
        self._job: Job | None = None  # that we have read

    def find_job(self, name: str) -> Job:
        """The shard's job; before it has one, that of this name, as the store describes it."""
        if self._state.job is not None:
            return self._state.job
        if not name:
            raise InvalidRequest("a shard that has just started needs the job")
        job = self._job
        if job is None or job.name != name:
            job = self._job = self._read_job(name)
        return job

    def adopt_stored(self, number: int, digest: bytes, job: Job, timeout: float) -> AdoptedEpoch:
        """Have the shard adopt the epoch of this number and digest, as it is in the store."""
        epoch = self._state.epoch
        if epoch is None or epoch.number < number:
            found = self._read_ahead(number, job)
            if found.digest != digest:
                self._ahead = None  # the next attempt reads it again
                raise ForgedRecord(f"epoch {number} in the store is not the one that recovery has made")
            epoch = found.epoch
        return self.adopt_epoch(epoch, job, timeout)

    def adopt_epoch(self, epoch: Epoch, job: Job, timeout: float) -> AdoptedEpoch:
        """Have the shard adopt this epoch, and first those before it that it misses."""
        with self._lock:
            memories = self._prepare_memories(epoch, job)
            answer = self._apply_thread.call(EpochReceived(epoch, job, memories=memories), timeout)
            if isinstance(answer, EpochsMissing):
                earlier = self._read_missing(answer, job)
                for one in [*earlier, epoch]:
                    received = EpochReceived(one, job, complete=True, memories=memories)
                    answer = self._apply_thread.call(received, timeout)
        assert isinstance(answer, AdoptedEpoch)
        self._ahead = None
        return answer

    def _prepare_memories(self, epoch: Epoch, job: Job) -> dict[str, BlockMemory]:
        """For the tables of which the epoch gives other blocks to this shard; what it brings may be written
        to. On this thread: the apply thread would look as if it hung while it waits for the kernel.
        """
        index = epoch.shard_index(self._state.member.key)
        held = self._state.view.tables
        memories = {}
        for table in job.tables if index >= 0 and epoch.number > self._state.number else ():
            if table.keys is not None or len(epoch.owners.get(table.name, ())) != table.blocks:
                continue
            ids = epoch.owned(table.name, index)
            store = held.get(table.name)
            if store is None or not np.array_equal(store.ids, ids):
                memories[table.name] = prepare_memory(table, ids, store)
        return memories

    def catch_up(self, timeout: float) -> None:
        """Read the newest epoch from the store and hand it in. Raises errors of the store."""
        job = self._state.job
        if job is None:
            return
        store = self._store.under(job.name)
        number = newest(store, EPOCHS)
        if number > self._state.number:
            self.adopt_epoch(self._read_ahead(number, job).epoch, job, timeout)

    def find_shard(self, key: str, number: int, job: Job) -> Member:
        """A shard of this epoch, as the epoch describes it: what a message says of its address is not
        believed. Ours may be older: a shard that has just started has none.
        """
        epoch = self._state.epoch
        if epoch is None or epoch.number < number:
            epoch = self._read_ahead(number, job).epoch
        index = epoch.shard_index(key)
        if index < 0:
            raise StaleEpoch(f"{key} is no shard of epoch {epoch.number}", epoch=epoch.number)
        return epoch.shards[index]

    def _read_job(self, name: str) -> Job:
        try:
            spec = read_job_spec(self._store.under(name))
        except ObjectNotFound as error:
            raise NotServing(f"job {name!r} is not in the store: {error.message}") from error
        if spec.name != name:
            raise WrongJob(f"the store describes job {spec.name!r} in the place of {name!r}")
        return codec.job_from_proto(spec)

    def _read_ahead(self, number: int, job: Job) -> StoredEpoch:
        """An epoch that we have not adopted. One is kept, as many donors are asked for in a row, and several
        threads may hear of it at once.
        """
        with self._reading:
            ahead = self._ahead
            if ahead is None or (ahead.epoch.job, ahead.epoch.number) != (job.name, number):
                try:
                    ahead = _read_epoch(self._store.under(job.name), number)
                except ObjectNotFound as error:
                    raise NotServing(f"epoch {number} is not in the store: {error.message}") from error
                self._ahead = ahead
            return ahead

    def _read_missing(self, missing: EpochsMissing, job: Job) -> list[Epoch]:
        store = self._store.under(job.name)
        found: list[Epoch] = []
        for number in range(missing.last, missing.first - 1, -1):
            try:
                earlier = _read_epoch(store, number).epoch
            except ObjectNotFound as error:
                raise NotServing(f"epoch {number} is missing in the store: {error.message}") from error
            if missing.own_only and earlier.shard_index(self._state.member.key) < 0:
                break
            found.append(earlier)
        return found[::-1]


def _read_epoch(store: Store, number: int) -> StoredEpoch:
    message = get_record(store, epoch_key(number), types_pb2.Epoch)
    if message.number != number:
        raise CorruptCheckpoint(f"epoch {number} says that it is {message.number}")
    return StoredEpoch(epoch_from_proto(message), message_digest(message))


def prepare_memory(table: Table, ids: Ids, store: BlockStore | None) -> BlockMemory:
    """What a store for these blocks is made in: that of the present one if it does, with what comes ready to
    be written to.
    """
    gained = len(ids) if store is None else int(np.count_nonzero(store.find_blocks(ids) < 0))
    if store is not None and store.memory.suits(len(ids) - gained, gained):
        memory = store.memory
    else:
        memory = _make_memory(table, ids)
        gained = len(ids)
    touch_pages(memory.untouched(gained))
    return memory


def _make_memory(table: Table, ids: Ids) -> BlockMemory:
    try:
        return BlockMemory(table, ids, reserve_zeros, lasting=True)
    except MemoryError:  # where all memory that is asked for has to be there, as with vm.overcommit_memory=2
        return BlockMemory(table, ids)
