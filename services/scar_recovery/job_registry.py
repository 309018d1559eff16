"""Job records of a store, and which of them a cluster runs.

Everything here blocks on the store and raises :class:`scar.errors.StoreError` or
:class:`scar.errors.StoreUnavailable`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace

from scar.errors import AlreadyExists, InvalidRequest, JobExists, JobNotFound, NotServing, ObjectNotFound
from scar.strategies import AUTO
from scar.table_checks import check_job_name, check_table_name
from scar.tables import Job
from scar.v1 import types_pb2
from scar.wire.codec import job_from_proto, job_to_proto
from scar_recovery.core.strategy_choice import choose_strategy
from scar_recovery.given_arrays import GivenArrays, put_part, remove_unnamed
from scar_recovery.job_settings import resumed_spec
from scar_recovery.recovery_store import RecoveryStore
from scar_recovery.strategy_facts import gather_facts
from scar_runtime.store import Store
from scar_runtime.store.job_records import create_revision, read_job_spec, read_start, replace_job_spec
from scar_runtime.store.layout import EPOCHS, JOB, cluster_jobs, numbered
from scar_runtime.store.records import create_record, get_record, newest, numbers

_log = logging.getLogger(__name__)


class JobRegistry:
    """``label``: of the cluster; others may have the same by mistake."""

    def __init__(self, store: Store, label: str) -> None:
        self._store = store
        self._runs = cluster_jobs(label)

    def find_running_job(self, ours: Callable[[str], bool] = lambda _job: True) -> Job | None:
        """The newest job that clusters of this label have run and that is ``ours``; None: there is none."""
        for number in reversed(numbers(self._store, self._runs)):
            name = get_record(self._store, numbered(self._runs, number), types_pb2.JobSpec).name
            if ours(name):
                return self._read_job(name)
        return None

    def find_changes(self, job: Job, resume: bool) -> str:
        """What a job that is resumed would have otherwise than before, in words; empty: nothing. Raises
        :class:`JobExists` for what cannot be.
        """
        known = self._read_job(job.name) if resume else None
        return self._revise(known, job)[1] if known is not None else ""

    def find_answer(self, job: str, start: types_pb2.JobStart | None) -> str | None:
        """What this request has changed of the job, in words, where it made the job what it is; None: it is
        a new one. Raises :class:`InvalidRequest` for another one that came under the same id.
        """
        if start is None:
            return None
        try:
            known, changes = read_start(self._store.under(job))
        except ObjectNotFound:
            return None
        if known.request_id != start.request_id:
            return None
        if known.digest != start.digest:
            raise InvalidRequest(
                f"request_id {start.request_id!r} was of another request, which started job {job!r}",
                "Draw a new one for each request; only the same request may be sent again under its id",
            )
        return changes

    def revise_job(self, job: Job, start: types_pb2.JobStart | None = None) -> Job:
        """Make it durable that the job goes on with these settings; the job as it is then. Raises
        :class:`NotServing` when another coordinator does the same at the same time.
        """
        known = self._read_job(job.name)
        if known is None:
            raise JobNotFound(f"job {job.name!r} cannot be resumed: the store has none of this name")
        spec, changes = self._revise(known, job)
        if changes:
            self._create_revision(_started(spec, start), changes)
        return job_from_proto(spec)

    def _create_revision(self, spec: types_pb2.JobSpec, changes: str) -> None:
        try:
            create_revision(self._store.under(spec.name), spec, changes, time.time())
        except AlreadyExists as error:
            raise NotServing(f"job {spec.name!r} has just been resumed by another coordinator") from error

    def _revise(self, known: Job, job: Job) -> tuple[types_pb2.JobSpec, str]:
        """With the keys of the arrays with which it began."""
        before = job_to_proto(known)
        spec, changes = resumed_spec(_without_keys(job_to_proto(known)), _without_keys(job_to_proto(job)))
        for table, kept in zip(spec.tables, before.tables, strict=True):
            table.init.CopyFrom(kept.init)
        if before.HasField("choice"):
            spec.choice.CopyFrom(before.choice)
        return spec, changes

    def declare_job(
        self, job: Job, given: GivenArrays, resume: bool, start: types_pb2.JobStart | None = None
    ) -> Job:
        """Make the job's description durable, or check it against the one that is; the job as it is recorded.

        A job that is resumed keeps the arrays with which it began, whatever is ``given``. Can be
        repeated before the job has begun; then the job is of the newest ``start``. Raises :class:`JobExists`
        for a job that is there already, unless ``resume`` is set and only settings differ
        (:meth:`revise_job`); :class:`JobNotFound` when there is nothing to resume; :class:`NotServing` when
        another coordinator creates it at the same time.
        """
        known = self._read_job(job.name)
        if known is not None:
            self._check_resumable(known, job, given, resume)
            if not resume and start is not None:
                store = self._store.under(job.name)
                replace_job_spec(store, _started(read_job_spec(store), start))
            return known
        if resume:
            raise JobNotFound(f"job {job.name!r} cannot be resumed: the store has none of this name")
        return self._create_job(_with_keys(job, given), given, start)

    def upload_initial(self, job: str, table: str, data: bytes) -> str:
        """Put a part of an initial array into the store; its key. Raises :class:`JobExists` for a job that
        has begun.
        """
        check_job_name(job)
        check_table_name(table)
        store = self._store.under(job)
        if newest(store, EPOCHS):
            raise JobExists(f"job {job!r} has begun, and has its initial values")
        return put_part(store, table, data)

    def choose_strategy(self, job: Job) -> Job:
        """The job with the strategy that suits it best by what is known now, which is in its record from
        then on. One that names its strategy stays as it is.
        """
        if job.recovery != AUTO:
            return job
        choice = choose_strategy(job, gather_facts(self._store, job.name))
        store = self._store.under(job.name)
        spec = read_job_spec(store)
        spec.choice.CopyFrom(job_to_proto(replace(job, choice=choice)).choice)
        replace_job_spec(store, spec)
        _log.info("job.strategy", extra={"job": job.name, "reason": choice.reason})
        return job_from_proto(spec)

    def record_run(self, job: Job) -> None:
        """From now on, and for the coordinators that come after us, the cluster runs this job.

        Can be repeated.
        """
        number = newest(self._store, self._runs)
        if (
            number
            and get_record(self._store, numbered(self._runs, number), types_pb2.JobSpec).name == job.name
        ):
            return
        create_record(self._store, numbered(self._runs, number + 1), types_pb2.JobSpec(name=job.name))

    def open_store(self, job: Job) -> RecoveryStore:
        return RecoveryStore(self._store, job)

    def _check_resumable(self, known: Job, job: Job, given: GivenArrays, resume: bool) -> None:
        if resume:
            self._revise(known, job)
        begun = newest(self._store.under(job.name), EPOCHS) > 0
        # a job that never began: the answer to its first start was lost
        if not resume and (begun or _without_choice(job_to_proto(known)) != _with_keys(job, given)):
            raise JobExists(
                f"job {job.name!r} exists already",
                f"Continue it by --resume (Python: resume=True), or start over: by --name, or after"
                f" `scar jobs rm {job.name}`",
            )

    def _create_job(
        self, spec: types_pb2.JobSpec, given: GivenArrays, start: types_pb2.JobStart | None
    ) -> Job:
        """Arrays first: from the moment that the job's record exists, x(0) can be made again by anybody."""
        store = self._store.under(spec.name)
        job = job_from_proto(spec)
        given.put_sent(store, job)
        given.require_uploaded(store, job)
        try:
            create_record(store, JOB, _started(spec, start))
        except AlreadyExists as error:  # perhaps this very request, by a coordinator that leads no more
            raise NotServing(f"job {spec.name!r} has just been started by another coordinator") from error
        if given.uploaded:
            remove_unnamed(store, job)
        return job

    def _read_job(self, name: str) -> Job | None:
        try:
            return job_from_proto(read_job_spec(self._store.under(name)))
        except ObjectNotFound:
            return None


def _with_keys(job: Job, given: GivenArrays) -> types_pb2.JobSpec:
    """The job's record: it names the arrays that the user gave."""
    spec = _without_keys(job_to_proto(job))
    for table, message in zip(job.tables, spec.tables, strict=True):
        if table.init.kind == "given":
            message.init.key, *more = given.keys_of(table)
            message.init.more_keys.extend(more)
    return spec


def _started(spec: types_pb2.JobSpec, start: types_pb2.JobStart | None) -> types_pb2.JobSpec:
    """The job's record, by this request."""
    if start is not None:
        spec.started.CopyFrom(start)
    return spec


def _without_choice(spec: types_pb2.JobSpec) -> types_pb2.JobSpec:
    spec.ClearField("choice")
    return spec


def _without_keys(spec: types_pb2.JobSpec) -> types_pb2.JobSpec:
    """What the user declared."""
    for table in _without_choice(spec).tables:
        table.init.ClearField("key")
        table.init.ClearField("more_keys")
    return spec
