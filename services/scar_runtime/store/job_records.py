"""How a job is described: as it was created, and as it is since it was resumed with other settings."""

from __future__ import annotations

from scar.v1.recovery_pb2 import JobRevision
from scar.v1.types_pb2 import JobSpec, JobStart
from scar_runtime.store import Store
from scar_runtime.store.layout import JOB, REVISIONS, numbered
from scar_runtime.store.records import create_record, get_record, newest, numbers, put_record


def read_job_spec(store: Store) -> JobSpec:
    """As the job is now. ``store`` is the job's. Raises :class:`scar.errors.ObjectNotFound` without one."""
    return _newest_revision(store).job


def read_start(store: Store) -> tuple[JobStart, str]:
    """The request that made the job what it is now, and what it changed, in words. ``store`` is the job's.
    Raises :class:`scar.errors.ObjectNotFound` without one.
    """
    revision = _newest_revision(store)
    return revision.job.started, revision.changes


def _newest_revision(store: Store) -> JobRevision:
    """Number 0: the job is as it was created."""
    number = newest(store, REVISIONS)
    if not number:
        return JobRevision(job=get_record(store, JOB, JobSpec))
    return get_record(store, numbered(REVISIONS, number), JobRevision)


def replace_job_spec(store: Store, spec: JobSpec) -> None:
    """The description that holds now is this one."""
    revision = _newest_revision(store)
    if not revision.number:
        put_record(store, JOB, spec)
        return
    revision.job.CopyFrom(spec)
    put_record(store, numbered(REVISIONS, revision.number), revision)


def read_revisions(store: Store) -> list[JobRevision]:
    """What was changed, oldest first, without the descriptions."""
    found = []
    for number in numbers(store, REVISIONS):
        revision = get_record(store, numbered(REVISIONS, number), JobRevision)
        revision.ClearField("job")
        found.append(revision)
    return found


def create_revision(store: Store, spec: JobSpec, changes: str, created: float) -> None:
    """Raises :class:`scar.errors.AlreadyExists` when somebody else was faster."""
    number = newest(store, REVISIONS) + 1
    revision = JobRevision(number=number, job=spec, changes=changes, created=created)
    create_record(store, numbered(REVISIONS, number), revision)
