"""Progress and lease of this process (docs/protocol.md section 8).

``beat`` is called by the thread that does the work, so a process that still answers calls but whose work is stuck shows it.
The lease counts from *before* the request that renewed it was sent. One that has run out comes back only when the recovery
coordinator confirms the epoch: we may have been declared dead meanwhile, and Redis would not know.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

STUCK_SECONDS = 2.5


class Heart:
    """Thread-safe. ``epoch`` is the newest epoch that this process has adopted; 0: none. Times are monotonic seconds."""

    def __init__(self, lease_seconds: float = 2.0, now: Callable[[], float] = time.monotonic) -> None:
        self.now = now
        self.epoch = 0
        self.progress = 0
        self._lease_seconds = lease_seconds
        self._moved = now()
        self._renewed = -math.inf
        self._resigned = False
        self._lock = threading.Lock()

    def beat(self) -> None:
        """The working thread has made progress, or is idle and healthy. Call it at least every 100 ms."""
        self.progress += 1
        self._moved = self.now()

    @property
    def idle(self) -> float:
        """Seconds since the working thread last moved."""
        return max(0.0, self.now() - self._moved)

    @property
    def stuck(self) -> bool:
        return self.idle > STUCK_SECONDS

    def lease_valid(self) -> bool:
        """May this process serve and acknowledge? Ask before applying and again before acknowledging."""
        return not self._resigned and self.now() - self._renewed < self._lease_seconds

    def renew(self, asked: float, *, confirmed: bool = False) -> None:
        """A heartbeat sent at ``asked`` was accepted. ``confirmed``: by recovery, for which our epoch is the newest."""
        with self._lock:
            if confirmed or self.lease_valid():
                self._renewed = max(self._renewed, asked)

    def resign(self) -> None:
        """Stop serving for good: this process is going away."""
        self._resigned = True
