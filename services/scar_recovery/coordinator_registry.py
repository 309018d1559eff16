"""Which coordinators there are: those whose heartbeats continue.

A process that is no shard or worker says hello at most once, and a pod of a Deployment never comes back under
its old name; so without this the list would grow by one with every restart, and those who are asked would be
the dead.
"""

from __future__ import annotations

from scar.errors import LivenessUnavailable
from scar.placement import Member
from scar.wire.timing import TIMING
from scar_recovery.core.membership import COORDINATORS
from scar_runtime.liveness.heartbeat_store import HeartbeatStore

LOOK_SECONDS = 20 * TIMING.heartbeat  # between looks


class CoordinatorRegistry:
    """``own``: the coordinator that looks, which is there in any case.

    Times are seconds of any clock that never goes back.
    """

    def __init__(self, heartbeats: HeartbeatStore, own: Member) -> None:
        self._heartbeats = heartbeats
        self._own = own
        self._counts: dict[str, int] = {}
        self._due = 0.0

    def live_coordinators(self, now: float) -> list[Member] | None:
        """Coordinators that have beaten since the last look; at the first one, all.

        None: it is not time for a look, or Redis does not answer.
        """
        if now < self._due:
            return None
        self._due = now + LOOK_SECONDS
        known = self._counts
        try:
            heartbeats = self._heartbeats.read_heartbeats()
        except LivenessUnavailable:
            self._counts = {}  # nobody can have beaten, so the next look believes all again
            return None
        self._counts = {key: beat.count for key, beat in heartbeats.items()}
        found = [self._own]
        for key, beat in heartbeats.items():
            fresh = known.get(key) != beat.count and key != self._own.key
            if fresh and beat.member.role in COORDINATORS:
                found.append(beat.member)
        return found
