"""Progress and lease of this process (docs/protocol.md section 8).

``record_progress`` is called by the thread that does the work, so a process that still answers calls but
whose work is stuck shows it. The lease counts from *before* the request that renewed it was sent. One that
has run out comes back only when the recovery coordinator confirms the epoch: we may have been declared dead
meanwhile, and Redis would not know. A suspended machine counts as well: its lease runs out while it sleeps.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

from scar.wire.timing import TIMING

STUCK_SECONDS = TIMING.hung

_CLOCK = getattr(
    time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC
)  # Linux's CLOCK_MONOTONIC stands still in suspend, macOS's does not


def boot_time() -> float:
    """Seconds of a clock that never jumps and does not stand still while the machine is suspended."""
    return time.clock_gettime(_CLOCK)


class ProgressMonitor:
    """Thread-safe. ``epoch`` is the newest epoch that this process has adopted; 0: none. Times are seconds
    of ``now``.
    """

    def __init__(self, lease_seconds: float = TIMING.lease, now: Callable[[], float] = boot_time) -> None:
        self.now = now
        self.epoch = 0
        self.progress = 0
        self._lease_seconds = lease_seconds
        self._moved = now()
        self._renewed = -math.inf
        self._given_up = False
        self._lock = threading.Lock()

    def record_progress(self) -> None:
        """The working thread has made progress, or is idle and healthy. Call it once per heartbeat."""
        self.progress += 1
        self._moved = self.now()

    @property
    def idle_seconds(self) -> float:
        """Seconds since the working thread last moved."""
        return max(0.0, self.now() - self._moved)

    @property
    def is_stuck(self) -> bool:
        return self.idle_seconds > STUCK_SECONDS

    def lease_valid(self) -> bool:
        """May this process serve and acknowledge? Ask before applying and again before acknowledging."""
        return not self._given_up and self.now() - self._renewed < self._lease_seconds

    def renew_lease(self, asked: float, *, confirmed: bool = False) -> None:
        """A heartbeat sent at ``asked`` was accepted. ``confirmed``: by recovery, for which our epoch is
        the newest.
        """
        with self._lock:
            if confirmed or self.lease_valid():
                self._renewed = max(self._renewed, asked)

    def give_up_lease(self) -> None:
        """Stop serving for good: this process is going away."""
        self._given_up = True
