"""Rounds that the recovery coordinator asks for: before a job ends, and before a shard goes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from scar.errors import NotServing, ScarError
from scar.placement import Member
from scar.transport import CHECKPOINT, Deadline, Link
from scar.v1 import checkpoint_pb2, checkpoint_pb2_grpc

SAVE_SECONDS = 60.0

_log = logging.getLogger(__name__)


class Saving:
    """``address``: of the checkpoint coordinator; empty: ``known`` says which ones have announced themselves."""

    def __init__(self, address: str, known: Callable[[], Sequence[Member]]) -> None:
        self._address, self._known = address, known

    def save_all(self, job: str) -> None:
        """Save everything that has changed. Raises :class:`NotServing`, with the reason."""
        problem = self._trigger(checkpoint_pb2.TriggerRequest(selection="full", fraction=1.0), SAVE_SECONDS)
        if problem:
            raise NotServing(
                f"the last state of job {job!r} could not be saved: {problem}", "Try again when the cluster is well"
            )

    def flush(self, shard: Member, seconds: float, begun: Callable[[], None]) -> None:
        """Save what a shard that is about to go has not saved: what would be missed most first, then the rest.

        So if it dies before its blocks have moved, or before all is saved, what is lost costs least. ``begun`` is called when
        the first part is safe, or cannot be saved. Never raises.
        """
        deadline = Deadline(seconds)
        for fraction in (0.0, 1.0):  # the job's; everything
            request = checkpoint_pb2.TriggerRequest(selection="priority", fraction=fraction, shard=shard.key)
            problem = self._trigger(request, deadline.remaining) if not deadline.expired else "no time is left"
            _log.info("shard.flushed", extra={"shard": shard.key, "fraction": fraction, "problem": problem})
            begun()
            if problem:
                return

    def _trigger(self, request: checkpoint_pb2.TriggerRequest, seconds: float) -> str:
        """Why it could not be done; empty: it was."""
        problem = "no checkpoint coordinator is there"
        for address in [self._address] if self._address else [member.address for member in self._known()]:
            link = Link(address, "checkpoint", CHECKPOINT)
            try:
                report = link.call(checkpoint_pb2_grpc.CheckpointStub(link.channel).Trigger, request, seconds)
                problem = report.error or (f"{', '.join(report.missed)} took no part" if report.missed else "")
            except ScarError as error:
                problem = error.message
            finally:
                link.close()
            if not problem:
                break
        return problem
