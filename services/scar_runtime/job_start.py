"""Starting a job on a cluster, whoever asks for it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping

import grpc

from scar.errors import Temporary, TooLarge, from_rpc
from scar.tables import Job
from scar.v1 import recovery_pb2, recovery_pb2_grpc
from scar.wire.codec import MAX_MESSAGE_BYTES, job_arrays, job_to_proto

START_JOB_TIMEOUT = 20.0  # seconds, with retries while the coordinator or the store is not ready
RETRY_PAUSE = 0.1  # seconds
FRAMING_BYTES = 32  # of an array in the message, beside its name and values, at most


def start_job(
    recovery: recovery_pb2_grpc.RecoveryStub,
    job: Job,
    resume: bool,
    timeout: float = START_JOB_TIMEOUT,
    *,
    take_over: bool = False,
    waits: Callable[[str], None] = lambda _reason: None,
) -> str:
    """Create the job, or go on with it; returns what one that is resumed has otherwise than before, in words.
    Retries what is temporary, as one request (``StartJobRequest.request_id``); raises every other
    ``ScarError``, and :class:`TooLarge` where given initial values do not go into one message. A job that is
    resumed has its own, which nobody sends again.

    ``take_over``: even if another cluster trains it. ``waits`` hears once of each reason to wait.
    """
    deadline = time.monotonic() + timeout
    reason = ""
    request = recovery_pb2.StartJobRequest(
        job=job_to_proto(job), resume=resume, take_over=take_over, request_id=str(uuid.uuid4())
    )
    if not resume:
        given = job_arrays(job)
        _ensure_given_fits(job, given, request.ByteSize())
        request.given.update(given)
    while True:
        try:
            reply = recovery.StartJob(request, timeout=timeout, wait_for_ready=True)
            return str(reply.changes)
        except grpc.RpcError as error:
            failure = from_rpc(error, "the recovery coordinator")
            if not isinstance(failure, Temporary) or time.monotonic() > deadline:
                raise failure from error
            if failure.message != reason:
                reason = failure.message
                waits(reason)
        time.sleep(RETRY_PAUSE)


def _ensure_given_fits(job: Job, given: Mapping[str, bytes], others: int) -> None:
    """``others``: bytes of the message beside arrays."""
    sizes = {name: len(raw) for name, raw in given.items()}
    framing = sum(len(name.encode()) + FRAMING_BYTES for name in sizes)
    if sum(sizes.values()) + others + framing <= MAX_MESSAGE_BYTES:
        return
    total = sum(sizes.values()) / 2**20
    largest = max(sizes, key=lambda name: sizes[name], default="")
    raise TooLarge(
        f"job {job.name!r} gives {total:.1f} MiB of initial values, most of them to table"
        f" {largest}, and a job starts with at most {MAX_MESSAGE_BYTES >> 20} MiB of them",
        "Let shards draw those of large tables: table.init = scar.normal(0, 0.1), scar.uniform or scar.zeros",
    )
