"""Rounds that the recovery coordinator asks for: before a job ends, and before a shard goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scar.errors import NotServing, ScarError
from scar.placement import Member
from scar.v1 import checkpoint_pb2, checkpoint_pb2_grpc
from scar.wire.transport import CHECKPOINT, Link

SAVE_SECONDS = 60.0


class CheckpointClient:
    """``address``: of the checkpoint coordinator; empty: ``known`` returns who announced itself."""

    def __init__(self, address: str, known: Callable[[], Sequence[Member]]) -> None:
        self._address = address
        self._known = known

    def save_all(self, job: str) -> int:
        """Save every block; returns the number of the manifest. Raises :class:`NotServing`, with the
        reason.
        """
        problem, report = self.trigger_round(
            checkpoint_pb2.TriggerRequest(selection="full", fraction=1.0), SAVE_SECONDS
        )
        if problem:
            raise NotServing(
                f"the last state of job {job!r} could not be saved: {problem}",
                "Try again when the cluster is well",
            )
        return int(report.manifest)

    def trigger_round(
        self, request: checkpoint_pb2.TriggerRequest, seconds: float
    ) -> tuple[str, checkpoint_pb2.RoundReport]:
        """Why it could not be done (empty: it was), and its report."""
        problem = "no checkpoint coordinator is there"
        report = checkpoint_pb2.RoundReport()
        addresses = [self._address] if self._address else [member.address for member in self._known()]
        for address in addresses:
            link = Link(address, "checkpoint", CHECKPOINT)
            try:
                report = link.call(checkpoint_pb2_grpc.CheckpointStub(link.channel).Trigger, request, seconds)
                problem = report.error or (
                    f"{', '.join(report.missed)} took no part" if report.missed else ""
                )
            except ScarError as error:
                problem = error.message
            finally:
                link.close()
            if not problem:
                break
        return problem, report
