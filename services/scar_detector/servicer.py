"""gRPC face of the detector: decode, one call, encode."""

from __future__ import annotations

import grpc

from scar.v1 import detector_pb2, detector_pb2_grpc
from scar.wire import codec
from scar_detector.core.member_state import DetectorView
from scar_detector.monitor import Monitor
from scar_runtime.process.claims import ClaimCheck


class DetectorServicer(detector_pb2_grpc.DetectorServicer):
    def __init__(self, monitor: Monitor, claims: ClaimCheck) -> None:
        self._monitor = monitor
        self._claims = claims

    def Beat(
        self, request: detector_pb2.BeatRequest, context: grpc.ServicerContext
    ) -> detector_pb2.BeatReply:
        member = self._claims.read_member(request.member, context)
        self._monitor.accept_beat(member, request.progress, request.epoch)
        return detector_pb2.BeatReply()

    def ListMembers(
        self, _request: detector_pb2.ListMembersRequest, _context: grpc.ServicerContext
    ) -> detector_pb2.ListMembersReply:
        views, redis, problem = self._monitor.list_members()
        return detector_pb2.ListMembersReply(
            members=[_view_to_proto(view) for view in views], redis=redis, problem=problem
        )


def _view_to_proto(view: DetectorView) -> detector_pb2.MemberView:
    return detector_pb2.MemberView(
        member=codec.member_to_proto(view.member),
        health=detector_pb2.Health.ValueType(int(view.health)),
        phi=view.phi,
        silence=view.silence,
        progress=view.progress,
    )
