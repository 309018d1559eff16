"""What the recovery coordinator keeps of one job in the store: epochs, ledger, running checkpoint.

Everything here blocks on the store and raises :class:`scar.errors.StoreError` or
:class:`scar.errors.StoreUnavailable`.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType

from scar.blocks import Ids
from scar.errors import (
    AlreadyExists,
    CorruptCheckpoint,
    ObjectNotFound,
    StoreUnavailable,
)
from scar.tables import Job
from scar.v1 import recovery_pb2, types_pb2
from scar_recovery.core.block_sources import SavedGroup, SavedState
from scar_runtime.checkpoint.damage import unreadable_blocks, unreadable_in, write_patches
from scar_runtime.checkpoint.good_state import newest_good
from scar_runtime.checkpoint.header_cache import HeaderCache
from scar_runtime.checkpoint.lost_checkpoint import LossPatience
from scar_runtime.checkpoint.manifest import Manifest, ObjectRef
from scar_runtime.checkpoint.manifest_codec import create_manifest, read_manifest
from scar_runtime.checkpoint.running_checkpoint import (
    RunningCheckpoint,
    load_newest,
    load_readable,
    load_running,
)
from scar_runtime.store import Store
from scar_runtime.store.failure_log import FailureLog
from scar_runtime.store.history_log import HistoryLog
from scar_runtime.store.job_records import read_revisions
from scar_runtime.store.layout import (
    EPOCHS,
    MANIFESTS,
    compact_key,
    epoch_key,
    finished_key,
)
from scar_runtime.store.records import create_record, get_record, newest, numbers, reread

# kept in the store
EPOCHS_LEAST = 16
EPOCHS_MOST = 1000
EPOCHS_BYTES = 64 << 20
HISTORY = 4
DAMAGE_SECONDS = 1.0  # a header that is still damaged after that long is not waited for
SEAL_ATTEMPTS = 8  # each one fails only because a round was committed meanwhile
CREATED_TOO_FAST = "manifests are created faster than a recovery can read them"

_log = logging.getLogger(__name__)


class RecoveryStore:
    """Epochs, ledger and running checkpoint of one job."""

    def __init__(self, store: Store, job: Job) -> None:
        self.job = job
        self._store = store.under(job.name)
        self._headers = HeaderCache(self._store, job)
        self._failures = FailureLog(self._store)
        self.revisions: list[recovery_pb2.JobRevision] = []
        self._saved: dict[bool, tuple[int, SavedBlocks]] = {}
        self._avoid: set[int] = set()  # consistent manifests of which blocks cannot be read any more
        self._patience = {full: LossPatience() for full in (False, True)}

    def load_revisions(self) -> None:
        """Read :attr:`revisions`; the job has no new ones while it runs."""
        self.revisions = read_revisions(self._store)

    def history_log(self) -> HistoryLog:
        """How the run went, for one thread at a time."""
        return HistoryLog(self._store)

    def newest_epoch(self) -> int:
        return newest(self._store, EPOCHS)

    def has_epoch(self, number: int) -> bool:
        """One small request, unlike :meth:`newest_epoch`."""
        try:
            self._store.get_range(epoch_key(number), 0, 1)
        except ObjectNotFound:
            return False
        return True

    def read_epoch(self, number: int) -> types_pb2.Epoch:
        found = get_record(self._store, epoch_key(number), types_pb2.Epoch)
        if found.number != number or found.job != self.job.name:
            raise CorruptCheckpoint(
                f"epoch {number} of job {self.job.name} says that it is {found.number} of {found.job!r}"
            )
        return found

    def create_epoch(self, epoch: types_pb2.Epoch) -> types_pb2.Epoch:
        """Returns what counts afterwards: this epoch, or one that somebody else created before (compare the
        author).

        One of a leader that was paused for so long that its number has been collected does not count: there
        are newer ones.
        """
        found = epoch
        try:
            create_record(self._store, epoch_key(epoch.number), epoch)
        except AlreadyExists:
            found = self.read_epoch(epoch.number)
        number = self.newest_epoch()
        return self.read_epoch(number) if number > epoch.number else found

    def collect_epochs(self, newest: types_pb2.Epoch) -> None:
        """Delete epochs that nobody asks for any more: members follow within seconds. Never before blocks
        have owners.
        """
        last = newest.number - kept_epochs(newest.ByteSize())
        for number in numbers(self._store, EPOCHS) if newest.shards else ():
            if number <= last:
                self._store.delete(epoch_key(number))

    def read_recent_epochs(self) -> list[types_pb2.Epoch]:
        """The newest epochs, ascending, back to one that has shards (the planner must know who owned what),
        or to the first.

        At least :data:`HISTORY` of them: a leader that died may not have written the ledger records of the
        last few.
        """
        found: list[types_pb2.Epoch] = []
        for number in range(self.newest_epoch(), 0, -1):
            found.append(self.read_epoch(number))
            if len(found) >= HISTORY and found[-1].shards:
                break
        return found[::-1]

    def read_failures(self) -> list[recovery_pb2.FailureRecord]:
        """The ledger, ascending."""
        return self._failures.read()

    def read_lost_pushes(self, number: int) -> list[recovery_pb2.LostReport]:
        """Which pushes a failure cost, by worker: too much to be kept in memory."""
        return self._failures.lost(number)

    def write_lost_pushes(self, number: int, worker: str, lost: Iterable[recovery_pb2.LostPushes]) -> None:
        self._failures.write_lost(number, worker, lost)

    def write_failure(self, record: recovery_pb2.FailureRecord, author: str) -> None:
        self._failures.write(record, author)

    def read_finished(self, number: int) -> recovery_pb2.FinishedRecord | None:
        """What was written down when the job had finished with this epoch; None: nothing was yet."""
        try:
            return get_record(self._store, finished_key(number), recovery_pb2.FinishedRecord)
        except ObjectNotFound:
            return None

    def create_finished(self, record: recovery_pb2.FinishedRecord) -> recovery_pb2.FinishedRecord:
        """Returns what exists under this number afterwards: this record, or one of another leader."""
        try:
            create_record(self._store, finished_key(record.number), record)
        except AlreadyExists:
            return self.read_finished(record.number) or record
        return record

    def read_manifest(self, number: int) -> Manifest:
        """As it is in the store. Raises what
        :func:`scar_runtime.checkpoint.manifest_codec.read_manifest` raises.
        """
        return read_manifest(self._store, number)

    def newest_saved(self, full: bool) -> SavedState:
        """The newest running checkpoint (``full``: the newest consistent one). One listing while
        :meth:`warm` keeps up.
        """
        return self._load_newest(full)[1]

    def _load_newest(self, full: bool) -> tuple[int, SavedBlocks]:
        """With the highest number that exists. Kept only when it was read from there: damage may be of one
        read.
        """
        number = newest(self._store, MANIFESTS)
        found = self._saved.get(full)
        if found is None or found[0] != number:
            running = self._read_newest(full)
            self._headers.keep({ref.key for ref in running.objects})
            found = number, SavedBlocks(running)
            if running.passed_over:
                _log.warning("manifest.passed_over", extra={"manifests": running.passed_over})
            elif running.unreadable:
                _log.warning("object.passed_over", extra={"objects": running.unreadable})
            else:
                self._saved[full] = found
        return found

    def _read_newest(self, full: bool) -> RunningCheckpoint:
        def load() -> RunningCheckpoint:
            if full:
                return load_newest(self._store, self.job, self._headers, True, self._avoid)
            return load_readable(self._store, self.job, self._headers, DAMAGE_SECONDS)

        return self._patience[full].read(self._store, self.job, load)

    def seal_checkpoint(
        self, full: bool, author: str, epoch: int, suspects: Mapping[str, Ids] = MappingProxyType({})
    ) -> SavedState:
        """The same, for an epoch of this number, and no round that is being committed can change it any more:
        the next number is taken, by a copy. What was saved after a consistent state is not in it: the job
        goes back behind that. Rounds go on once their coordinator knows the epoch.

        In it the ``suspects`` (ids by table) can be read: what is damaged is replaced by the newest copy that
        is not.

        Else a manifest with what a dead shard had saved last could appear right after its blocks were put
        back without it. The next recovery of these blocks would find pushes in them that the ledger has given
        up.
        """
        for _ in range(SEAL_ATTEMPTS):
            number, newest_saved = self._load_newest(full=False)
            running = (self._newest_consistent(suspects) if full else newest_saved).running
            patched: list[ObjectRef] = []
            copy = self._copy_state(running, number, newest_saved, author, epoch)
            copy = replace(copy, full=full or (running.manifest.full and not running.unreadable))
            if not full:
                key = compact_key(copy.number, f"{author}-{uuid.uuid4().hex[:8]}")
                patched = write_patches(self._headers, newest_saved.running, suspects, key, author)
                copy = replace(copy, objects=(*copy.objects, *patched))
            try:
                create_manifest(self._store, copy)
            except AlreadyExists:
                continue
            if not patched:  # else their headers are to be read
                self._saved[full] = copy.number, SavedBlocks(running.listed_by(copy))
            return self.newest_saved(full)
        raise StoreUnavailable(CREATED_TOO_FAST)

    def find_good(self, below: int) -> int:
        """See :func:`scar_runtime.checkpoint.good_state.newest_good`."""
        return newest_good(HeaderCache(self._store, self.job), below, self._goes_back_whole)

    @property
    def _goes_back_whole(self) -> bool:
        """Whatever this job goes back to is of one clock."""
        return self.job.strategy.rollback or self.job.worker_strategy.rollback

    def seal_state(self, number: int, author: str, epoch: int) -> SavedState:
        """This epoch takes the job back to this manifest (0: x(0)), and nothing that is newer counts any
        more: the next number is taken, by a copy, as :meth:`seal_checkpoint` does it.

        Raises :class:`CorruptCheckpoint` or :class:`ObjectNotFound` when it cannot be read.
        """
        wanted = load_running(self._store, self.job, number)
        for _ in range(SEAL_ATTEMPTS):
            last, newest_saved = self._load_newest(full=False)
            copy = self._copy_state(wanted, last, newest_saved, author, epoch)
            copy = replace(copy, full=wanted.manifest.full or not number)
            try:
                create_manifest(self._store, copy)
            except AlreadyExists:
                continue
            return SavedBlocks(load_running(self._store, self.job, copy))
        raise StoreUnavailable(CREATED_TOO_FAST)

    def _copy_state(
        self, running: RunningCheckpoint, last: int, newest_saved: SavedBlocks, author: str, epoch: int
    ) -> Manifest:
        """A manifest of this state, for this epoch, behind the ``last`` number and the newest one."""
        return replace(
            running.manifest,
            objects=tuple(running.objects),
            number=last + 1,
            parent=newest_saved.manifest,
            round=newest_saved.running.manifest.round,
            plan=newest_saved.running.manifest.plan,
            job=self.job.name,
            author=author,
            passed_over=tuple(newest_saved.unread),
            sealed_for=epoch,
        )

    def _newest_consistent(self, suspects: Mapping[str, Ids]) -> SavedBlocks:
        """The newest consistent state of which the suspects can be read: one block of another moment would
        spoil it.
        """
        while True:
            found = self._load_newest(full=True)[1]
            running = found.running
            if not any(
                len(unreadable_blocks(self._headers, running, table, ids)) for table, ids in suspects.items()
            ):
                return found
            _log.warning("manifest.passed_over", extra={"manifests": [found.manifest]})
            self._avoid.add(found.manifest)
            self._saved.pop(True, None)

    def find_unreadable(self, manifest: int, key: str, table: str, ids: Ids) -> Ids:
        """Which of these blocks we cannot read either from the object that this manifest names.

        The header counts as it is in the store now: whoever asks has just found it damaged, perhaps after we
        had read it.
        """
        self._headers.forget(key)
        try:
            listed = reread(partial(read_manifest, self._store, manifest)).objects
        except (CorruptCheckpoint, ObjectNotFound):
            return ids
        found = [unreadable_in(self._headers, ref, table, ids) for ref in listed if ref.key == key]
        return found[0] if found else ids

    def prefetch_manifests(self) -> None:
        """Read new manifests and headers before a failure needs them."""
        self.newest_saved(full=self.job.strategy.rollback)


def kept_epochs(size: int) -> int:
    """How many of this size are kept."""
    return max(EPOCHS_LEAST, min(EPOCHS_MOST, EPOCHS_BYTES // max(1, size)))


class SavedBlocks:
    """A :class:`RunningCheckpoint` as plans see it."""

    def __init__(self, running: RunningCheckpoint) -> None:
        self.running = running
        self.manifest = int(running.manifest.number)
        self.clock = int(running.manifest.clock)
        partly = [self.manifest] if running.unreadable else []
        self.unread = sorted({*running.passed_over, *running.manifest.passed_over, *partly})
        self.passed_over = bool(self.unread)

    def saved_groups(self, table: str, ids: Ids, /) -> Sequence[SavedGroup]:
        """Blocks of one saved state together."""
        groups = []
        for origin in self.running.origins(table, ids):
            key = self.running.objects[origin.index].key if origin.index >= 0 else ""
            groups.append(SavedGroup(origin.group, key))
        return groups
