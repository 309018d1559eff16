"""Living members whose protocol this version does not serve: as long as there are any it must not lead."""

from __future__ import annotations

from scar.errors import LivenessUnavailable
from scar.version import OLDEST_PROTOCOL
from scar_runtime.liveness.heartbeat_store import HeartbeatStore


class OlderMembers:
    """What their heartbeats say. A member lives if its heartbeat has changed since the look before: what the
    dead have left in Redis keeps nobody from leading.
    """

    def __init__(self, heartbeats: HeartbeatStore, oldest: int = OLDEST_PROTOCOL) -> None:
        self._heartbeats = heartbeats
        self._oldest = oldest
        self._seen: dict[str, int] = {}  # key of an older member -> count of its heartbeat

    def find_obstacle(self) -> str:
        """Why this coordinator waits, in words; empty: it need not. Without Redis nobody can know."""
        try:
            beats = self._heartbeats.read_heartbeats()
        except LivenessUnavailable:
            return ""
        older = {key: beat for key, beat in beats.items() if 0 < beat.protocol < self._oldest}
        alive = [beat for key, beat in sorted(older.items()) if self._seen.get(key) != beat.count]
        self._seen = {key: beat.count for key, beat in older.items()}
        if not alive:
            return ""
        first = alive[0]
        return (
            f"{first.member.name} speaks protocol {first.protocol}, and this version serves {self._oldest}"
            " and newer: it does not lead while members of the version before live. Go back by"
            " `helm rollback`, or end the job and uninstall the release, install this version, and resume"
        )
