"""Starting the job of a worker's own file, for clusters to which nobody else says what to train."""

from __future__ import annotations

import logging

from scar.errors import DeadlineExceeded, JobExists, NotServing, ScarError, Temporary
from scar.job_start import start_job
from scar.tables import Job
from scar.v1 import recovery_pb2, recovery_pb2_grpc
from scar.wire.transport import RECOVERY, Deadline, Link, retry

_log = logging.getLogger(__name__)


def ensure_started(recovery: str, job: Job, deadline: Deadline) -> None:
    """Start the job, or go on with it when the store has it. Returns when the cluster runs it; who started it
    does not matter.

    While other workers train another job, it waits for their end. Raises :class:`JobExists` when the store
    has a job of this name with another description, and :class:`DeadlineExceeded`.
    """
    link = Link(recovery, "recovery", RECOVERY)
    try:
        retry(
            lambda timeout: _start_or_resume(link, job, timeout), deadline, f"job {job.name!r} to be started"
        )
    finally:
        link.close()


def _start_or_resume(link: Link, job: Job, timeout: float) -> None:
    if _running_job(link, timeout) == job.name:
        return
    try:
        start_job(recovery_pb2_grpc.RecoveryStub(link.channel), job, False, timeout)
        _log.info("job.started", extra={"job": job.name})
    except JobExists:
        _resume_job(link, job, timeout)


def _resume_job(link: Link, job: Job, timeout: float) -> None:
    """The store has the job, or other workers are busy with another one."""
    try:
        start_job(recovery_pb2_grpc.RecoveryStub(link.channel), job, True, timeout)
        _log.info("job.resumed", extra={"job": job.name})
    except ScarError as error:
        running = _running_job(link, timeout)
        if isinstance(error, Temporary | DeadlineExceeded) or running in ("", job.name):
            raise
        raise NotServing(f"the cluster runs job {running!r}: {error.message}") from error


def _running_job(link: Link, timeout: float) -> str:
    """Name of the job that the cluster runs; empty: none."""
    stub = recovery_pb2_grpc.RecoveryStub(link.channel)
    reply = link.call(stub.GetJob, recovery_pb2.GetJobRequest(), timeout)
    return reply.job.name if reply.started else ""
