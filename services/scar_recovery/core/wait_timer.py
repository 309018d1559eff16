"""For how long the recovery coordinator has waited for the same thing. Pure."""

from __future__ import annotations


class WaitTimer:
    """Times are seconds of one monotonic clock."""

    def __init__(self) -> None:
        self._reason = ""
        self._since = 0.0

    def observe(self, reason: str, now: float) -> None:
        """What is waited for, in words; told again and again."""
        if reason != self._reason:
            self._reason = reason
            self._since = now

    def seconds(self, now: float) -> float:
        """0 when nothing is waited for."""
        return now - self._since if self._reason else 0.0
