"""Decode, one call, encode. A coordinator on standby answers only :meth:`Status`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import grpc

from scar.errors import InvalidRequest, NotServing
from scar.placement import Role
from scar.v1 import recovery_pb2 as pb
from scar.v1 import recovery_pb2_grpc
from scar.wire import codec, tracing
from scar_recovery.codec import (
    MAX_EVIDENCE,
    failure_report_from_proto,
    job_start_from_proto,
    uploaded_from_proto,
)
from scar_recovery.given_arrays import GivenArrays
from scar_recovery.leader_session import RecoverySession
from scar_runtime.process.claims import ClaimCheck


class RecoveryServicer(recovery_pb2_grpc.RecoveryServicer):
    """``session``: the current leadership; None on standby."""

    def __init__(self, session: Callable[[], RecoverySession | None], claims: ClaimCheck) -> None:
        self._current = session
        self._claims = claims

    def _leading(self) -> RecoverySession:
        session = self._current()
        if session is None:
            raise NotServing("this recovery coordinator is on standby")
        return session

    def _opened(self) -> RecoverySession:
        """One that has read the epochs.

        Before that all members are strangers, and what it hears of them would be lost.
        """
        session = self._leading()
        if not session.opened:
            raise NotServing(
                session.problem or "this recovery coordinator has just begun to lead, and reads the epochs"
            )
        return session

    def StartJob(self, request: pb.StartJobRequest, _context: grpc.ServicerContext) -> pb.StartJobReply:
        job = codec.job_from_proto(request.job)
        start = job_start_from_proto(request)
        jobs = self._opened().jobs
        given = GivenArrays(request.given, uploaded_from_proto(request))
        epoch, changes = jobs.start_job(job, given, request.resume, request.take_over, start)
        return pb.StartJobReply(epoch=epoch, changes=changes)

    def UploadInitial(
        self, request: pb.UploadInitialRequest, _context: grpc.ServicerContext
    ) -> pb.UploadInitialReply:
        jobs = self._opened().jobs
        return pb.UploadInitialReply(key=jobs.upload_initial(request.job, request.table, request.data))

    def GetJob(self, _request: pb.GetJobRequest, _context: grpc.ServicerContext) -> pb.GetJobReply:
        spec = self._opened().spec
        return pb.GetJobReply(started=spec is not None, job=spec)

    def Join(self, request: pb.JoinRequest, context: grpc.ServicerContext) -> pb.JoinReply:
        member = self._claims.read_member(request.member, context)
        if member.role is Role.SHARD and not member.address:
            raise InvalidRequest(f"shard {member.name} has no address host:port")
        return pb.JoinReply(epoch=self._leading().members.join(member, request.secret, request.protocol))

    def Leave(self, request: pb.LeaveRequest, context: grpc.ServicerContext) -> pb.LeaveReply:
        member = self._claims.read_caller(request.member, context)
        members = self._opened().members
        members.check_secret(member, request.secret)
        epoch, remaining = members.leave(member, request.finished)
        return pb.LeaveReply(epoch=epoch, remaining=remaining)

    def ReportFailure(self, request: pb.FailureReport, _context: grpc.ServicerContext) -> pb.FailureReply:
        report = failure_report_from_proto(request)
        tracing.remember_operation(("failure", report.member.key))
        return pb.FailureReply(epoch=self._opened().members.report_failure(report))

    def GetEpochs(self, request: pb.GetEpochsRequest, context: grpc.ServicerContext) -> pb.GetEpochsReply:
        session = self._leading()
        answered = request.answered if request.offers else None
        with self._waiting(session, request, context):
            epochs = session.epochs_after(request.after, request.wait, answered)
        return pb.GetEpochsReply(
            epochs=epochs, outage=session.outage, question=session.open_question(answered)
        )

    def _waiting(
        self, session: RecoverySession, request: pb.GetEpochsRequest, context: grpc.ServicerContext
    ) -> AbstractContextManager[None]:
        """A worker lives while its call waits here."""
        if not request.HasField("worker"):
            return nullcontext()
        worker = self._claims.read_caller(request.worker, context)
        session.members.check_secret(worker, request.secret)
        return session.unaddressed.waiting(worker.key, context)

    def Offer(self, request: pb.OfferRequest, context: grpc.ServicerContext) -> pb.OfferReply:
        worker = self._claims.read_caller(request.worker, context)
        session = self._leading()
        session.members.check_secret(worker, request.secret)
        session.accept_offer(request)
        return pb.OfferReply()

    def RequestRollback(self, request: pb.RollbackRequest, context: grpc.ServicerContext) -> pb.RollbackReply:
        worker = self._claims.read_caller(request.worker, context)
        session = self._opened()
        session.members.check_secret(worker, request.secret)
        session.roll_back(worker, request.clock, request.reason[:MAX_EVIDENCE])
        return pb.RollbackReply()

    def Renew(self, request: pb.RenewRequest, context: grpc.ServicerContext) -> pb.RenewReply:
        member = self._claims.read_caller(request.member, context)
        session = self._leading()
        session.members.check_secret(member, request.secret)
        return pb.RenewReply(epoch=session.renew_lease(member))

    def ReportReroute(self, request: pb.RerouteReport, context: grpc.ServicerContext) -> pb.RerouteReply:
        worker = self._claims.read_caller(request.worker, context)
        session = self._leading()
        session.members.check_secret(worker, request.secret)
        session.accept_report(request)
        return pb.RerouteReply()

    def ListFailures(
        self, request: pb.ListFailuresRequest, _context: grpc.ServicerContext
    ) -> pb.ListFailuresReply:
        failures, more = self._leading().list_failures(request.after, request.lost)
        return pb.ListFailuresReply(failures=failures, more=more)

    def Status(self, _request: pb.RecoveryStatusRequest, _context: grpc.ServicerContext) -> pb.RecoveryStatus:
        session = self._current()
        if session is None:
            return pb.RecoveryStatus(leader=False, problem="on standby: another recovery coordinator leads")
        job = session.jobs.job
        return pb.RecoveryStatus(
            leader=True,
            epoch=session.epoch_number,
            members=[codec.member_to_proto(member) for member in session.members.all_members()],
            recovering=session.recovering,
            problem=session.problem,
            job=job.name if job is not None else "",
            finished=session.finished,
            store=session.store_url,
            waiting=session.waiting_seconds,
            store_health=session.store_health,
            revisions=session.revisions,
        )
