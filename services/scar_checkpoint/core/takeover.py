"""The start of a leadership: the newest running checkpoint is read, again and again until it is there."""

from __future__ import annotations

from scar_checkpoint.core.events import ReadCheckpoint

RETRY_SECONDS = 0.2  # after the store did not let us read it


class Takeover:
    """One read at a time. ``problem``: why the last one failed; empty: it did not."""

    def __init__(self) -> None:
        self.problem = ""
        self._read_at: float | None = 0.0  # None: it is being read, or nobody needs it any more

    def start_due(self, now: float) -> list[ReadCheckpoint]:
        if self._read_at is None or now < self._read_at:
            return []
        self._read_at = None
        return [ReadCheckpoint()]

    def record_failure(self, reason: str, now: float) -> None:
        self.problem = reason
        self._read_at = now + RETRY_SECONDS

    def end(self) -> None:
        """It is there, or somebody else leads."""
        self.problem = ""
        self._read_at = None
