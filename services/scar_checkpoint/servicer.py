"""Decode, one call, encode. A coordinator on standby answers only :meth:`Status`."""

from __future__ import annotations

from collections.abc import Callable

import grpc

from scar.checkpoints import SELECTIONS
from scar.errors import InvalidRequest, NotServing
from scar.v1 import checkpoint_pb2 as pb
from scar.v1 import checkpoint_pb2_grpc
from scar_checkpoint.leader_session import CheckpointSession
from scar_checkpoint.round_codec import summary_to_proto

TRIGGER_SECONDS = 120.0  # for callers without a deadline


class CheckpointServicer(checkpoint_pb2_grpc.CheckpointServicer):
    """``session``: the current leadership, None on standby; ``problem``: why there is none, in words."""

    def __init__(self, session: Callable[[], CheckpointSession | None], problem: Callable[[], str]) -> None:
        self._session = session
        self._problem = problem

    def Trigger(self, request: pb.TriggerRequest, context: grpc.ServicerContext) -> pb.RoundReport:
        if request.selection and request.selection not in SELECTIONS:
            raise InvalidRequest(
                f"selection {request.selection!r} is unknown", f"Use one of {', '.join(SELECTIONS)}"
            )
        if not 0 <= request.fraction <= 1:
            raise InvalidRequest(f"fraction {request.fraction} is not in (0, 1]")
        session = self._session()
        if session is None:
            raise NotServing(f"this checkpoint coordinator does not lead: {self._problem()}")
        remaining = context.time_remaining()
        timeout = TRIGGER_SECONDS if remaining is None else remaining
        summary = session.trigger_round(request.selection, request.fraction, timeout, request.shard)
        return summary_to_proto(summary)

    def Status(
        self, _request: pb.CheckpointStatusRequest, _context: grpc.ServicerContext
    ) -> pb.CheckpointStatus:
        session = self._session()
        if session is None:
            return pb.CheckpointStatus(leader=False, age=-1.0, problem=self._problem())
        return session.status()
