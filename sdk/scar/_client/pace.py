"""How fast a worker gets on."""

from __future__ import annotations

import math
import time


class Pace:
    """Seconds per clock, averaged over about the last ten."""

    def __init__(self) -> None:
        self.seconds_per_clock = 0.0
        self._last: float | None = None

    @property
    def seconds_since_clock(self) -> float:
        """Seconds since the last clock ended; infinity before that."""
        return time.monotonic() - self._last if self._last is not None else math.inf

    def tick(self) -> None:
        """A clock has ended."""
        now = time.monotonic()
        if self._last is not None:
            took = now - self._last
            known = self.seconds_per_clock
            self.seconds_per_clock = 0.9 * known + 0.1 * took if known else took
        self._last = now
