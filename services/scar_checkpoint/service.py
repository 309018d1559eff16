"""Wiring: who leads, and the threads that do.

A Redis lease keeps two coordinators from doing the same work; without Redis everybody acts, and the store decides.
"""

from __future__ import annotations

import threading

from scar.codec import job_from_proto, member_to_proto
from scar.errors import ScarError, UnsafeStore
from scar.tables import Job
from scar.transport import RECOVERY, Link
from scar.v1 import checkpoint_pb2, checkpoint_pb2_grpc, recovery_pb2, recovery_pb2_grpc
from scar_checkpoint import metrics
from scar_checkpoint.config import CheckpointSettings
from scar_checkpoint.servicer import CheckpointServicer
from scar_checkpoint.term import RETRY, Term
from scar_runtime.app import App, Service
from scar_runtime.candidate import Candidate
from scar_runtime.store import open_store

ROLE = "checkpoint"
ASK_SECONDS = 2.0
SERVICE = checkpoint_pb2.DESCRIPTOR.services_by_name["Checkpoint"].full_name


class Leadership:
    """Standby or leader. ``term`` is None on standby and before there is a job; ``problem`` says why."""

    def __init__(self, app: App, settings: CheckpointSettings) -> None:
        self._app, self._settings = app, settings
        self._store = open_store(settings.store)
        self._ttl = settings.lease_seconds
        self._recovery = Link(settings.recovery, "recovery coordinator", RECOVERY)
        self._replaced = threading.Event()  # somebody else holds the lease
        self.term: Term | None = None
        self.problem = "it starts"
        self._candidate = Candidate(app.beats, ROLE, app.incarnation, settings.lease_seconds)
        self.safe = False  # the store was found safe

    def run(self) -> None:
        """Stand by, lead, stand by again, until the process stops. Raises :class:`scar.errors.UnsafeStore`."""
        self._check_store()
        while not self._app.stopping.is_set():
            self._app.heart.beat()
            job = self._job() if self._may_lead() else None
            if job is not None:
                self._lead(job)
            self._app.stopping.wait(RETRY)

    def keep_lease(self) -> None:
        """Renew the lease while leading; notice when it has gone to somebody else."""
        while not self._app.stopping.wait(self._ttl / 4):
            if self.term is not None and not self._may_lead():
                self._replaced.set()

    def age(self) -> float:
        term = self.term
        return -1.0 if term is None else term.age()

    def _check_store(self) -> None:
        while not self._app.stopping.is_set():
            self._app.heart.beat()
            try:
                self._store.probe()
            except UnsafeStore:
                raise
            except ScarError as error:
                self.problem = str(error)
                self._app.log.warning("store.unavailable", extra={"reason": str(error)})
                self._app.stopping.wait(RETRY)
                continue
            self.safe = True
            return

    @property
    def leads(self) -> bool:
        return self._candidate.leads

    def _may_lead(self) -> bool:
        leads = self._candidate.ask()
        self.problem = "" if leads else "another checkpoint coordinator leads"
        return leads

    def _job(self) -> Job | None:
        """The cluster's job, once it was started. Says hello to the recovery coordinator on the way."""
        stub = recovery_pb2_grpc.RecoveryStub(self._recovery.channel)
        try:
            self._recovery.call(stub.Join, recovery_pb2.JoinRequest(member=member_to_proto(self._app.member)), ASK_SECONDS)
            reply = self._recovery.call(stub.GetJob, recovery_pb2.GetJobRequest(), ASK_SECONDS)
            job = job_from_proto(reply.job) if reply.started else None
        except ScarError as error:
            self.problem = f"the recovery coordinator does not answer: {error.message}"
            return None
        self.problem = "" if job is not None else "no job was started yet"
        return job

    def _lead(self, job: Job) -> None:
        self._replaced.clear()
        self.term = Term(self._app.member, self._settings, job, self._store.under(job.name), self._recovery, self._app.spawn)
        self._app.log.info("leadership.taken", extra={"job": job.name})
        self.term.run(lambda: self._app.stopping.is_set() or self._replaced.is_set(), self._turned)
        self.term = None
        self._app.log.info("leadership.ended", extra={"job": job.name})

    def _turned(self, epoch: int) -> None:
        self._app.heart.epoch = epoch
        self._app.heart.beat()


def build(app: App) -> Service:
    settings = app.settings
    assert isinstance(settings, CheckpointSettings)
    leadership = Leadership(app, settings)
    metrics.register(leadership.age)
    servicer = CheckpointServicer(lambda: leadership.term, lambda: leadership.problem)

    def start() -> None:
        app.spawn("leadership", leadership.run)
        app.spawn("lease", leadership.keep_lease)

    return Service(
        register=lambda server: checkpoint_pb2_grpc.add_CheckpointServicer_to_server(servicer, server),
        service_names=(SERVICE,),
        start=start,
        stop=lambda: None,
        ready=lambda: leadership.safe and leadership.leads,
        settled=lambda: leadership.safe,
    )
