"""What the recovery coordinator keeps in the store: which job a cluster runs, its epochs and ledger, the running checkpoint.

Everything here blocks on the store and raises :class:`scar.errors.StoreError` or :class:`scar.errors.StoreUnavailable`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scar.blocks import Ids
from scar.codec import job_from_proto, job_to_proto
from scar.errors import (
    AlreadyExists,
    CorruptCheckpoint,
    InvalidRequest,
    JobExists,
    JobNotFound,
    ObjectNotFound,
    StoreUnavailable,
)
from scar.tables import Job
from scar.v1 import recovery_pb2, types_pb2
from scar.v1.checkpoint_pb2 import Manifest
from scar_recovery.plans import Origin, Saved
from scar_runtime.records import create_record, get_record, newest, numbered, numbers, put_record
from scar_runtime.running import MANIFESTS, Headers, RunningCheckpoint, load_newest
from scar_runtime.store import Store

JOB = "job"
EPOCHS = "epochs"
LEDGER = "ledger"
HISTORY = 4
SEAL_ATTEMPTS = 8  # each one fails only because a round was committed meanwhile
CLUSTERS = "_clusters"  # no job can have this name


class Jobs:
    """Job records of a store, and which of them a cluster runs."""

    def __init__(self, store: Store, cluster: str) -> None:
        self._store = store
        self._runs = f"{CLUSTERS}/{cluster}"

    def current(self) -> Job | None:
        """The job that this cluster runs; None: none was started yet."""
        number = newest(self._store, self._runs)
        if not number:
            return None
        name = get_record(self._store, numbered(self._runs, number), types_pb2.JobSpec).name
        return self._read(name)

    def declare(self, job: Job, given: Mapping[str, bytes], resume: bool) -> None:
        """Make the job's description durable, or check it against the one that is. Can be repeated before the job has begun.

        Raises :class:`JobExists` for a job that is there already, unless ``resume`` is set and the description is the same;
        :class:`JobNotFound` when there is nothing to resume.
        """
        known = self._read(job.name)
        if known is not None:
            self._continue(known, job, resume)
        elif resume:
            raise JobNotFound(f"job {job.name!r} cannot be resumed: the store has none of this name")
        else:
            self._create(job, given)

    def run(self, job: Job) -> None:
        """From now on, and for the coordinators that come after us, the cluster runs this job. Can be repeated."""
        number = newest(self._store, self._runs)
        if number and get_record(self._store, numbered(self._runs, number), types_pb2.JobSpec).name == job.name:
            return
        create_record(self._store, numbered(self._runs, number + 1), types_pb2.JobSpec(name=job.name))

    def _continue(self, known: Job, job: Job, resume: bool) -> None:
        same = job_to_proto(known) == job_to_proto(job)
        if resume and not same:
            raise JobExists(
                f"job {job.name!r} exists with another description", "Resume it as it was declared, or choose another name"
            )
        begun = newest(self._store.under(job.name), EPOCHS) > 0
        if not resume and (begun or not same):  # a job that never began: the answer to its first start was lost
            raise JobExists(f"job {job.name!r} exists already")

    def _create(self, job: Job, given: Mapping[str, bytes]) -> None:
        """Arrays first: from the moment that the job's record exists, x(0) can be made again by anybody."""
        store = self._store.under(job.name)
        for table in job.tables:
            if table.init.kind != "given":
                continue
            if len(given.get(table.name, b"")) != table.bytes:
                raise InvalidRequest(f"table {table.name}: the given initial array is missing or has not {table.bytes} bytes")
            store.put(f"init/{table.name}", given[table.name])
        try:
            create_record(store, JOB, job_to_proto(job))
        except AlreadyExists as error:
            raise JobExists(f"job {job.name!r} was started by somebody else at the same time") from error

    def _read(self, name: str) -> Job | None:
        try:
            return job_from_proto(get_record(self._store.under(name), JOB, types_pb2.JobSpec))
        except ObjectNotFound:
            return None


class Archive:
    """Epochs, ledger and running checkpoint of one job."""

    def __init__(self, store: Store, job: Job) -> None:
        self.job = job
        self._store = store.under(job.name)
        self._headers = Headers(self._store, job)
        self._saved: dict[bool, tuple[int, SavedBlocks]] = {}

    def newest_epoch(self) -> int:
        return newest(self._store, EPOCHS)

    def has_epoch(self, number: int) -> bool:
        """One small request, unlike :meth:`newest_epoch`."""
        try:
            self._store.get_range(numbered(EPOCHS, number), 0, 1)
        except ObjectNotFound:
            return False
        return True

    def epoch(self, number: int) -> types_pb2.Epoch:
        found = get_record(self._store, numbered(EPOCHS, number), types_pb2.Epoch)
        if found.number != number or found.job != self.job.name:
            raise CorruptCheckpoint(f"epoch {number} of job {self.job.name} says that it is {found.number} of {found.job!r}")
        return found

    def create_epoch(self, epoch: types_pb2.Epoch) -> types_pb2.Epoch:
        """Returns what exists under this number afterwards: this epoch, or one that was created before (compare the author)."""
        try:
            create_record(self._store, numbered(EPOCHS, epoch.number), epoch)
        except AlreadyExists:
            return self.epoch(epoch.number)
        return epoch

    def history(self) -> list[types_pb2.Epoch]:
        """The newest epochs, ascending, back to one that has shards (the planner must know who owned what), or to the first.

        At least :data:`HISTORY` of them: a leader that died may not have written the ledger records of the last few.
        """
        found: list[types_pb2.Epoch] = []
        for number in range(self.newest_epoch(), 0, -1):
            found.append(self.epoch(number))
            if len(found) >= HISTORY and found[-1].shards:
                break
        return found[::-1]

    def failures(self) -> list[recovery_pb2.FailureRecord]:
        """The ledger, ascending."""
        keys = (numbered(LEDGER, number) for number in numbers(self._store, LEDGER))
        return [get_record(self._store, key, recovery_pb2.FailureRecord) for key in keys]

    def write_failure(self, record: recovery_pb2.FailureRecord) -> None:
        put_record(self._store, numbered(LEDGER, record.number), record)

    def saved(self, full: bool) -> Saved:
        """The newest running checkpoint (``full``: the newest consistent one). One listing while :meth:`warm` keeps up."""
        number = newest(self._store, MANIFESTS)
        cached = self._saved.get(full)
        if cached is None or cached[0] != number:
            running = load_newest(self._store, self.job, self._headers, full)
            self._headers.keep({ref.key for ref in running.objects})
            cached = number, SavedBlocks(running)
            self._saved[full] = cached
        return cached[1]

    def sealed(self, full: bool, author: str) -> Saved:
        """The same, and no round that is being committed can change it any more: the next number is taken, by a copy.

        Else a manifest with what a dead shard had saved last could appear right after its blocks were put back without it. The
        next recovery of these blocks would find pushes in them that the ledger has given up.
        """
        for _ in range(SEAL_ATTEMPTS):
            self.saved(full=False)
            number, newest_saved = self._saved[False]
            copy = Manifest()
            copy.CopyFrom(newest_saved.running.manifest)
            copy.number, copy.parent, copy.job, copy.author = number + 1, newest_saved.manifest, self.job.name, author
            try:
                create_record(self._store, numbered(MANIFESTS, copy.number), copy)
            except AlreadyExists:
                continue
            return self.saved(full)
        raise StoreUnavailable("manifests are created faster than a recovery can read them")

    def warm(self) -> None:
        """Read new manifests and headers before a failure needs them."""
        self.saved(full=self.job.strategy.rollback)


class SavedBlocks:
    """A :class:`RunningCheckpoint` as plans see it."""

    def __init__(self, running: RunningCheckpoint) -> None:
        self.running = running
        self.manifest = int(running.manifest.number)
        self.clock = int(running.manifest.clock)

    def origins(self, table: str, ids: Ids, /) -> Sequence[Origin]:
        """Blocks of one saved state together."""
        return [
            Origin(
                origin.group.ids,
                self.running.objects[origin.index].key if origin.index >= 0 else "",
                origin.group.clock,
                origin.group.watermark,
            )
            for origin in self.running.origins(table, ids)
        ]
