"""Which coordinators there are: those whose heartbeats go on.

A process that is no shard or worker says hello at most once, and a pod of a Deployment never comes back under its old name; so
without this the list would grow by one with every restart, and those who are asked would be the dead.
"""

from __future__ import annotations

from scar.errors import LivenessUnavailable
from scar.placement import Member
from scar_recovery.members import COORDINATORS
from scar_runtime.liveness import Beats

LOOK_SECONDS = 2.0  # between looks: twenty heartbeats


class Attendance:
    """``own``: the coordinator that looks, which is there in any case. Times are seconds of any clock that never goes back."""

    def __init__(self, beats: Beats, own: Member) -> None:
        self._beats, self._own = beats, own
        self._counts: dict[str, int] = {}
        self._due = 0.0

    def look(self, now: float) -> list[Member] | None:
        """Coordinators that have beaten since the last look; at the first one, all. None: not yet, or Redis does not answer."""
        if now < self._due:
            return None
        self._due, known = now + LOOK_SECONDS, self._counts
        try:
            beats = self._beats.read()
        except LivenessUnavailable:
            self._counts = {}  # nobody can have beaten, so the next look believes all again
            return None
        self._counts = {key: beat.count for key, beat in beats.items()}
        fresh = [beat.member for key, beat in beats.items() if known.get(key) != beat.count and key != self._own.key]
        return [self._own, *(member for member in fresh if member.role in COORDINATORS)]
