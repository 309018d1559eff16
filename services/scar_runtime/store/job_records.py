"""How a job is described: as it was created, and as it is since it was resumed with other settings."""

from __future__ import annotations

from scar.v1.recovery_pb2 import JobRevision
from scar.v1.types_pb2 import JobSpec
from scar_runtime.store import Store
from scar_runtime.store.layout import JOB, REVISIONS, numbered
from scar_runtime.store.records import create_record, get_record, newest, numbers, put_record


def read_job_spec(store: Store) -> JobSpec:
    """As the job is now. ``store`` is the job's. Raises :class:`scar.errors.ObjectNotFound` without one."""
    number = newest(store, REVISIONS)
    if not number:
        return get_record(store, JOB, JobSpec)
    return get_record(store, numbered(REVISIONS, number), JobRevision).job


def replace_job_spec(store: Store, spec: JobSpec) -> None:
    """The description that holds now is this one."""
    number = newest(store, REVISIONS)
    if not number:
        put_record(store, JOB, spec)
        return
    key = numbered(REVISIONS, number)
    revision = get_record(store, key, JobRevision)
    revision.job.CopyFrom(spec)
    put_record(store, key, revision)


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
