"""Becoming a worker of a running cluster: :func:`join`."""

from __future__ import annotations

import math
import os
import secrets
import threading

from scar._client.client import UNACKED_BYTES, Client
from scar._client.heartbeats import HeartbeatStream
from scar._client.recovery_client import RecoveryClient
from scar.errors import JobNotFound, ScarError
from scar.member_secrets import hash_secret, new_secret
from scar.placement import Epoch, Member, Role
from scar.tables import Job
from scar.training import START_TIMEOUT_SECONDS, Worker
from scar.wire import tracing
from scar.wire.timing import heartbeat_seconds
from scar.wire.transport import Deadline

TIMEOUT_SECONDS = 60.0


def join(
    recovery: str,
    name: str,
    *,
    job: str = "",
    incarnation: str = "",
    address: str = "",
    secret: bytes = b"",
    detector: str = "",
    timeout: float = TIMEOUT_SECONDS,
    start_timeout: float = START_TIMEOUT_SECONDS,
    unacked_bytes: int = UNACKED_BYTES,
    outage_timeout: float = math.inf,
    stopping: threading.Event | None = None,
) -> Worker:
    """Become a worker of the cluster whose recovery coordinator is at ``recovery`` ("host:port").

    ``name`` stays the same over restarts. ``job``: wait until the cluster runs this one, not whichever it
    runs now. ``timeout``: seconds for one operation. ``start_timeout``: seconds to wait for the job to start
    and for the other workers; it ends early when ``stopping`` is set. ``outage_timeout``: seconds that an
    operation waits longer while the object store is away and blocks wait for their recovery.
    ``unacked_bytes``: of pushes to one shard that may be unacknowledged before a push waits. ``detector``
    ("host:port"): send it heartbeats; for a process that is no service of the cluster, whose death is noticed
    within seconds then, and without some ten seconds later. ``incarnation``, ``address``, ``secret``: of a
    process that is one.

    Raises :class:`DeadlineExceeded` when the job does not start in time, :class:`JobNotFound` when it ends
    before this worker is part of it, :class:`ConfigError` for a heartbeat that cannot be
    (:mod:`scar.wire.timing`).
    """
    heartbeat_seconds(os.environ)
    secret = secret or new_secret()
    incarnation = incarnation or secrets.token_hex(6)
    member = Member(Role.WORKER, name, incarnation, address, hash_secret(secret), named_calls=True)
    tracing.start_from_environment("worker", name, incarnation)
    recovery_client = RecoveryClient(recovery, secret)
    deadline = Deadline(start_timeout, stopping)
    try:
        spec = recovery_client.wait_for_job(deadline, job)
        epoch = _join_epoch(recovery_client, spec, member, deadline)
    except ScarError:
        recovery_client.close()
        raise
    client = Client(spec, member, recovery_client, timeout, unacked_bytes, outage_timeout)
    heartbeats = None
    if detector:
        heartbeats = HeartbeatStream(detector, member, lambda: (client.progress, client.view.number))
    worker = Worker(client, recovery_client, heartbeats, start_timeout)
    try:
        client.start(epoch, deadline)
        client.await_workers(deadline)
    except ScarError:
        worker.close()
        raise
    return worker


def _join_epoch(recovery: RecoveryClient, job: Job, member: Member, deadline: Deadline) -> Epoch:
    """The first epoch that has this worker. It joins again and again: a coordinator that took it in may have
    been replaced before an epoch said so, and nobody else would know.
    """
    known = 0
    while True:
        recovery.join(member, deadline)
        epoch = recovery.poll_epoch(known, deadline)
        if epoch is None:
            continue
        if member in epoch.workers:
            return epoch
        if epoch.job != job.name:
            raise JobNotFound(f"job {job.name!r} ended before {member.name} could join it")
        known = epoch.number
