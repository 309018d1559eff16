"""Starting a job on a cluster, whoever asks for it."""

from __future__ import annotations

import time
from collections.abc import Callable

import grpc

from scar.errors import Temporary, from_rpc
from scar.tables import Job
from scar.v1 import recovery_pb2, recovery_pb2_grpc
from scar.wire.codec import job_arrays, job_to_proto

START_JOB_TIMEOUT = 20.0  # seconds, with retries while the coordinator or the store is not ready
RETRY_PAUSE = 0.1  # seconds


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
    Retries what is temporary; raises every other ``ScarError``.

    ``take_over``: even if another cluster trains it. ``waits`` hears once of each reason to wait.
    """
    deadline = time.monotonic() + timeout
    reason = ""
    request = recovery_pb2.StartJobRequest(
        job=job_to_proto(job), resume=resume, given=dict(job_arrays(job)), take_over=take_over
    )
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
