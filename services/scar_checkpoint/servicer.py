"""Decode, one call, encode. A coordinator on standby answers only :meth:`Status`."""

from __future__ import annotations

from collections.abc import Callable

import grpc

from scar.checkpoints import SELECTIONS
from scar.errors import InvalidRequest, NotServing
from scar.v1 import checkpoint_pb2 as pb
from scar.v1 import checkpoint_pb2_grpc
from scar_checkpoint.term import Term, report

TRIGGER_SECONDS = 120.0  # for callers without a deadline


class CheckpointServicer(checkpoint_pb2_grpc.CheckpointServicer):
    """``term``: the current leadership, None on standby; ``problem``: why there is none, in words."""

    def __init__(self, term: Callable[[], Term | None], problem: Callable[[], str]) -> None:
        self._current, self._problem = term, problem

    def Trigger(self, request: pb.TriggerRequest, context: grpc.ServicerContext) -> pb.RoundReport:
        if request.selection and request.selection not in SELECTIONS:
            raise InvalidRequest(f"selection {request.selection!r} is unknown", f"Use one of {', '.join(SELECTIONS)}")
        if not 0 <= request.fraction <= 1:
            raise InvalidRequest(f"fraction {request.fraction} is not in (0, 1]")
        term = self._current()
        if term is None:
            raise NotServing(f"this checkpoint coordinator does not lead: {self._problem()}")
        remaining = context.time_remaining()
        timeout = TRIGGER_SECONDS if remaining is None else remaining
        return report(term.trigger(request.selection, request.fraction, timeout, request.shard))

    def Status(self, _request: pb.CheckpointStatusRequest, _context: grpc.ServicerContext) -> pb.CheckpointStatus:
        term = self._current()
        if term is None:
            return pb.CheckpointStatus(leader=False, age=-1.0, problem=self._problem())
        return term.status()
