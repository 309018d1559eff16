"""Starting a job on a cluster, whoever asks for it: users by :func:`start`."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import TypeVar

import grpc

from scar.errors import DeadlineExceeded, Temporary, from_rpc
from scar.tables import Job
from scar.v1 import recovery_pb2, recovery_pb2_grpc
from scar.wire.codec import MAX_MESSAGE_BYTES, job_arrays, job_to_proto
from scar.wire.table_messages import INITIAL_PART_BYTES
from scar.wire.transport import RECOVERY, Link

START_JOB_TIMEOUT = 20.0  # seconds of a request, with retries while coordinator or store are not ready
UPLOAD_TIMEOUT = 120.0  # seconds of one part of initial values, which may come over a slow link
RETRY_PAUSE = 0.1  # seconds
FRAMING_BYTES = 32  # of an array in the message, beside its name and values, at most

Waits = Callable[[str], None]
StartReply = TypeVar("StartReply")


def start(
    recovery: str,
    job: Job,
    *,
    resume: bool = False,
    take_over: bool = False,
    timeout: float = START_JOB_TIMEOUT,
) -> str:
    """Start a job on the cluster whose recovery coordinator is at ``recovery`` ("host:port"). Its workers are
    processes that :func:`scar.join`, wherever they run; one of them, or another process, starts it once.

    ``resume``: go on with the job of this name where its checkpoint is. Returns what it has otherwise than
    before then, in words. ``take_over``: even if another cluster trains it. ``timeout``: seconds of a
    request, with retries while the coordinator or the store are not ready.

    Raises :class:`JobExists` for a name that has been trained under, and for a cluster that trains another
    job; :class:`JobNotFound` when there is nothing to resume; :class:`DeadlineExceeded` when nobody answers.
    """
    link = Link(recovery, "recovery", RECOVERY)
    try:
        stub = recovery_pb2_grpc.RecoveryStub(link.channel)
        return start_job(stub, job, resume, timeout, take_over=take_over)
    except DeadlineExceeded as error:
        raise DeadlineExceeded(
            f"no recovery coordinator at {recovery} has taken job {job.name!r} within {timeout:g} s",
            "Give host:port as `scar up` prints it; on Kubernetes: the service scar-recovery, port 7070",
        ) from error
    finally:
        link.close()


def start_job(
    recovery: recovery_pb2_grpc.RecoveryStub,
    job: Job,
    resume: bool,
    timeout: float = START_JOB_TIMEOUT,
    *,
    take_over: bool = False,
    waits: Waits = lambda _reason: None,
) -> str:
    """Create the job, or go on with it; returns what one that is resumed has otherwise than before, in words.
    Retries what is temporary, as one request (``StartJobRequest.request_id``); raises every other
    ``ScarError``. Given initial values that do not go into one message are uploaded first, in parts. A job
    that is resumed has its own, which nobody sends again.

    ``timeout``: of each request, in seconds. ``take_over``: even if another cluster trains it. ``waits``
    hears once of each reason to wait.
    """
    request = recovery_pb2.StartJobRequest(
        job=job_to_proto(job), resume=resume, take_over=take_over, request_id=str(uuid.uuid4())
    )
    if not resume:
        _add_given(request, recovery, job, timeout, waits)
    reply = _call(recovery.StartJob, request, timeout, waits)
    return str(reply.changes)


def _add_given(
    request: recovery_pb2.StartJobRequest,
    recovery: recovery_pb2_grpc.RecoveryStub,
    job: Job,
    timeout: float,
    waits: Waits,
) -> None:
    """Into the message, or into the store before it."""
    given = job_arrays(job)
    framing = sum(len(name.encode()) + FRAMING_BYTES for name in given)
    total = sum(len(raw) for raw in given.values())
    if total + framing + request.ByteSize() <= MAX_MESSAGE_BYTES:
        request.given.update({name: bytes(raw) for name, raw in given.items()})
        return
    waits(f"{total / 2**20:,.0f} MiB of initial values go into the store first")
    for name, raw in given.items():
        for start in range(0, len(raw), INITIAL_PART_BYTES):
            part = recovery_pb2.UploadInitialRequest(
                job=job.name, table=name, data=bytes(raw[start : start + INITIAL_PART_BYTES])
            )
            reply = _call(recovery.UploadInitial, part, max(timeout, UPLOAD_TIMEOUT), waits)
            request.uploaded[name].keys.append(reply.key)


def _call(method: Callable[..., StartReply], request: object, timeout: float, waits: Waits) -> StartReply:
    """The answer to a request that may be sent again."""
    deadline = time.monotonic() + timeout
    reason = ""
    while True:
        try:
            return method(request, timeout=timeout, wait_for_ready=True)
        except grpc.RpcError as error:
            failure = from_rpc(error, "the recovery coordinator")
            if not isinstance(failure, Temporary) or time.monotonic() > deadline:
                raise failure from error
            if failure.message != reason:
                reason = failure.message
                waits(reason)
        time.sleep(RETRY_PAUSE)
