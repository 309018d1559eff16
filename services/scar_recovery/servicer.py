"""Decode, one call, encode. A coordinator on standby answers only :meth:`Status`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import grpc

from scar import codec
from scar.errors import InvalidRequest, NotServing
from scar.placement import Member, Role
from scar.v1 import recovery_pb2 as pb
from scar.v1 import recovery_pb2_grpc, types_pb2
from scar_recovery.members import Report
from scar_recovery.term import Term

MAX_EVIDENCE = 500  # characters


class RecoveryServicer(recovery_pb2_grpc.RecoveryServicer):
    """``term``: the current leadership; None on standby."""

    def __init__(self, term: Callable[[], Term | None]) -> None:
        self._current = term

    def _term(self) -> Term:
        term = self._current()
        if term is None:
            raise NotServing("this recovery coordinator is on standby")
        return term

    def _informed(self) -> Term:
        """One that has read the epochs. Before that all members are strangers, and what it hears of them would be lost."""
        term = self._term()
        if not term.opened:
            raise NotServing(term.problem() or "this recovery coordinator has just begun to lead, and reads the epochs")
        return term

    def StartJob(self, request: pb.StartJobRequest, _context: grpc.ServicerContext) -> pb.StartJobReply:
        job = codec.job_from_proto(request.job)
        return pb.StartJobReply(epoch=self._term().start_job(job, request.given, request.resume))

    def GetJob(self, _request: pb.GetJobRequest, _context: grpc.ServicerContext) -> pb.GetJobReply:
        spec = self._informed().spec
        return pb.GetJobReply(started=spec is not None, job=spec)

    def Join(self, request: pb.JoinRequest, _context: grpc.ServicerContext) -> pb.JoinReply:
        return pb.JoinReply(epoch=self._term().join(_member(request.member)))

    def Leave(self, request: pb.LeaveRequest, _context: grpc.ServicerContext) -> pb.LeaveReply:
        epoch, remaining = self._informed().leave(codec.member_from_proto(request.member))
        return pb.LeaveReply(epoch=epoch, remaining=remaining)

    def ReportFailure(self, request: pb.FailureReport, _context: grpc.ServicerContext) -> pb.FailureReply:
        if not all(math.isfinite(seconds) and seconds >= 0 for seconds in (request.silence, request.detect_seconds)):
            raise InvalidRequest("silence and detect_seconds must be at least 0")
        member = codec.member_from_proto(request.member)
        report = Report(member, request.proved, request.silence, request.detect_seconds, request.evidence[:MAX_EVIDENCE])
        return pb.FailureReply(epoch=self._informed().failed(report))

    def GetEpochs(self, request: pb.GetEpochsRequest, _context: grpc.ServicerContext) -> pb.GetEpochsReply:
        return pb.GetEpochsReply(epochs=self._term().epochs(request.after, request.wait))

    def Renew(self, request: pb.RenewRequest, _context: grpc.ServicerContext) -> pb.RenewReply:
        return pb.RenewReply(epoch=self._term().renew(codec.member_from_proto(request.member)))

    def ReportReroute(self, request: pb.RerouteReport, _context: grpc.ServicerContext) -> pb.RerouteReply:
        self._term().reroute(request)
        return pb.RerouteReply()

    def ListFailures(self, _request: pb.ListFailuresRequest, _context: grpc.ServicerContext) -> pb.ListFailuresReply:
        return pb.ListFailuresReply(failures=self._term().failures())

    def Status(self, _request: pb.RecoveryStatusRequest, _context: grpc.ServicerContext) -> pb.RecoveryStatus:
        term = self._current()
        if term is None:
            return pb.RecoveryStatus(leader=False, problem="on standby: another recovery coordinator leads")
        return pb.RecoveryStatus(
            leader=True,
            epoch=term.number,
            members=[codec.member_to_proto(member) for member in term.members()],
            recovering=term.recovering(),
            problem=term.problem(),
            job=term.job.name if term.job is not None else "",
        )


def _member(message: types_pb2.Member) -> Member:
    """Who wants to join. Keys of members become names of objects in the store, so they are checked here, once."""
    member = codec.member_from_proto(message)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", member.name):
        raise InvalidRequest(f"member name {member.name[:80]!r} is not valid", "Use 1 to 63 letters, digits, '_', '.', '-'")
    if not re.fullmatch(r"[0-9a-f]{12}", member.incarnation):
        raise InvalidRequest(f"incarnation {member.incarnation[:80]!r} of {member.name} is not 12 hex digits")
    if member.role == Role.SHARD and not re.fullmatch(r"\S{1,255}:\d{1,5}", member.address):
        raise InvalidRequest(f"shard {member.name} has no address host:port")
    return member
