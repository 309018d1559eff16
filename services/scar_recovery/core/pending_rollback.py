"""A rollback that a worker has asked for, until an epoch has done it. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from scar.placement import Epoch
from scar_recovery.core.epoch_intent import RollbackRequest
from scar_recovery.core.events import RollbackAsked, RollbackEvent

NEVER = float("inf")
ROLLBACKS = 3  # within ROLLBACK_CLOCKS: a job that needs more does not converge
ROLLBACK_CLOCKS = 1000


class PendingRollback:
    """``request`` None: there is none. ``since``: when it was asked for, infinity: there is none."""

    def __init__(self) -> None:
        self.request: RollbackRequest | None = None
        self.since = NEVER

    def handle(self, event: RollbackEvent, epoch: Epoch | None, now: float) -> None:
        """``epoch``: the newest. One that cannot be done is dropped; whoever still wants it asks again."""
        if isinstance(event, RollbackAsked):
            self._add_request(event.request, epoch, now)
        elif self.request is not None and self.request.clock == event.clock:
            self._end()

    def _add_request(self, request: RollbackRequest, epoch: Epoch | None, now: float) -> None:
        """Workers ask because of the same clock at the same time, and again until they see it done. Of
        several clocks the lowest counts: what was saved before it was saved before them all.
        """
        if epoch is None or is_answered(epoch, request.clock):
            return
        if self.request is None or request.clock < self.request.clock:
            self.request = request
            self.since = min(self.since, now)

    def adopt_epoch(self, epoch: Epoch) -> None:
        if self.request is not None and is_answered(epoch, self.request.clock):
            self._end()

    def _end(self) -> None:
        self.request = None
        self.since = NEVER


def is_answered(epoch: Epoch, clock: int) -> bool:
    """Whether the model that gave this clock its loss exists no more: a rollback came after it."""
    return clock < epoch.restart


def may_roll_back(clock: int, earlier: Iterable[int]) -> bool:
    """``earlier``: the clocks at which the job has gone back at a worker's request."""
    return sum(clock - ROLLBACK_CLOCKS < one for one in earlier) < ROLLBACKS
