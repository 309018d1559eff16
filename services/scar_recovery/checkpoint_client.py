"""Rounds that the recovery coordinator asks for: before a job ends, and before a shard goes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from scar.errors import NotServing, ScarError
from scar.placement import Member
from scar.v1 import checkpoint_pb2, checkpoint_pb2_grpc
from scar.wire.transport import CHECKPOINT, Deadline, Link

SAVE_SECONDS = 60.0

_log = logging.getLogger(__name__)


class CheckpointClient:
    """``address``: of the checkpoint coordinator; empty: ``known`` returns who announced itself."""

    def __init__(self, address: str, known: Callable[[], Sequence[Member]]) -> None:
        self._address = address
        self._known = known

    def save_all(self, job: str) -> int:
        """Save every block; returns the number of the manifest. Raises :class:`NotServing`, with the
        reason.
        """
        problem, manifest = self._trigger_round(
            checkpoint_pb2.TriggerRequest(selection="full", fraction=1.0), SAVE_SECONDS
        )
        if problem:
            raise NotServing(
                f"the last state of job {job!r} could not be saved: {problem}",
                "Try again when the cluster is well",
            )
        return manifest

    def save_leaving_shard(self, shard: Member, seconds: float, saved: Callable[[], None]) -> None:
        """Save what a shard that is about to go has not saved: what would be missed most first, then the
        rest.

        So if it dies before its blocks have moved, or before all is saved, what is lost costs least.
        ``saved`` is called when the first part is safe, or cannot be saved. Never raises.
        """
        deadline = Deadline(seconds)
        for fraction in (0.0, 1.0):  # the job's; everything
            request = checkpoint_pb2.TriggerRequest(selection="priority", fraction=fraction, shard=shard.key)
            problem = "no time is left"
            if not deadline.expired:
                problem, _ = self._trigger_round(request, deadline.remaining)
            _log.info("shard.flushed", extra={"shard": shard.key, "fraction": fraction, "problem": problem})
            saved()
            if problem:
                return

    def _trigger_round(self, request: checkpoint_pb2.TriggerRequest, seconds: float) -> tuple[str, int]:
        """Why it could not be done (empty: it was), and the number of the manifest."""
        problem = "no checkpoint coordinator is there"
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
                return "", int(report.manifest)
        return problem, 0
