"""Wiring: the session of a checkpoint coordinator that leads, once the cluster has a job."""

from __future__ import annotations

import time

from scar.errors import ScarError
from scar.event_log import EventRing, StorySource
from scar.tables import Job
from scar.v1 import checkpoint_pb2, checkpoint_pb2_grpc, recovery_pb2, recovery_pb2_grpc
from scar.wire.codec import job_from_proto, join_request
from scar.wire.transport import RECOVERY, Link
from scar_checkpoint import metrics
from scar_checkpoint.config import CheckpointSettings
from scar_checkpoint.leader_session import CheckpointSession
from scar_checkpoint.servicer import CheckpointServicer
from scar_runtime.liveness.leader_election import IsStopping, LeaderElection
from scar_runtime.process.app import App, Service
from scar_runtime.store import Store

ROLE = "checkpoint"
ASK_SECONDS = 2.0
SERVICE = checkpoint_pb2.DESCRIPTOR.services_by_name["Checkpoint"].full_name


class CheckpointCandidate:
    """``election``: whose terms are of the job that the recovery coordinator names."""

    def __init__(self, app: App, settings: CheckpointSettings) -> None:
        self._app = app
        self._settings = settings
        self._story = EventRing()  # of the last session
        self._recovery = Link(settings.recovery, "recovery coordinator", RECOVERY)
        self.election = LeaderElection(app, ROLE, settings.lease_seconds, self._begin, self._lead)

    def _begin(self, store: Store) -> CheckpointSession | None:
        job = self._find_job()
        if job is None:
            return None
        spawn = self._app.spawn
        session = CheckpointSession(
            self._app.member, self._settings, job, store.under(job.name), self._recovery, spawn
        )
        self._story = session.story
        return session

    def stories(self) -> list[StorySource]:
        return [StorySource("checkpoint", self._story, time.monotonic)]

    def _find_job(self) -> Job | None:
        """The cluster's job, once it was started. Says hello to the recovery coordinator on the way."""
        stub = recovery_pb2_grpc.RecoveryStub(self._recovery.channel)
        try:
            hello = join_request(self._app.member, self._app.secret)
            self._recovery.call(stub.Join, hello, ASK_SECONDS)
            reply = self._recovery.call(stub.GetJob, recovery_pb2.GetJobRequest(), ASK_SECONDS)
            job = job_from_proto(reply.job) if reply.started else None
        except ScarError as error:
            self.election.problem = f"the recovery coordinator does not answer: {error.message}"
            return None
        self.election.problem = "" if job is not None else "no job was started yet"
        return job

    def _lead(self, session: CheckpointSession, stop: IsStopping) -> str:
        session.run(stop, self._show_progress)
        return ""

    def _show_progress(self, epoch: int) -> None:
        self._app.liveness.epoch = epoch
        self._app.liveness.record_progress()


def build(app: App) -> Service:
    assert isinstance(app.settings, CheckpointSettings)
    candidate = CheckpointCandidate(app, app.settings)
    election = candidate.election
    metrics.register(lambda: -1.0 if (session := election.session) is None else session.age())
    servicer = CheckpointServicer(lambda: election.session, lambda: election.problem)
    return Service(
        register=lambda server: checkpoint_pb2_grpc.add_CheckpointServicer_to_server(servicer, server),
        service_names=(SERVICE,),
        start=election.start,
        stop=lambda: None,
        ready=lambda: election.holds_lease,
        settled=lambda: election.can_lead,
        stories=candidate.stories,
    )
