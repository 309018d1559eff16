"""gRPC face of the detector: decode, one call, encode."""

from __future__ import annotations

import grpc

from scar import codec
from scar.v1 import detector_pb2, detector_pb2_grpc
from scar_detector.detector import View
from scar_detector.monitor import Monitor


class DetectorServicer(detector_pb2_grpc.DetectorServicer):
    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor

    def Beat(self, request: detector_pb2.BeatRequest, _context: grpc.ServicerContext) -> detector_pb2.BeatReply:
        self._monitor.beat(codec.member_from_proto(request.member), request.progress, request.epoch)
        return detector_pb2.BeatReply()

    def ListMembers(
        self, _request: detector_pb2.ListMembersRequest, _context: grpc.ServicerContext
    ) -> detector_pb2.ListMembersReply:
        views, redis, problem = self._monitor.look()
        return detector_pb2.ListMembersReply(members=[_encode(view) for view in views], redis=redis, problem=problem)


def _encode(view: View) -> detector_pb2.MemberView:
    return detector_pb2.MemberView(
        member=codec.member_to_proto(view.member),
        health=detector_pb2.Health.ValueType(int(view.health)),
        phi=view.phi,
        silence=view.silence,
        progress=view.progress,
    )
