"""When the next periodic round begins: at which clock, and how long after a failure."""

from __future__ import annotations

from scar.tables import Job
from scar_checkpoint.core.rounds import ActiveRound

PAUSE = 0.05  # seconds between rounds for which acknowledgements wait
BACKOFF = 0.5  # seconds until a failed round is tried again; doubled up to BACKOFF_MOST
BACKOFF_MOST = 15.0


class RoundSchedule:
    """``due_clock``: the open clock for which the next round waits; ``not_before``: the earliest time."""

    def __init__(self, job: Job) -> None:
        self.due_clock = 0
        self.not_before = 0.0
        self.problem = ""  # why the last round failed; empty: it did not
        self._job = job
        self._failures = 0
        self.follow_clock(0)

    def follow_clock(self, clock: int) -> None:
        """The running checkpoint is of this clock now."""
        self.due_clock = self._next_clock(clock)

    def roll_back(self, clock: int) -> None:
        """The job goes on from this clock."""
        self.due_clock = min(self.due_clock, self._next_clock(clock))

    def skip_to(self, clock: int) -> None:
        """Somebody else has committed a round of this clock."""
        self.due_clock = max(self.due_clock, self._next_clock(clock))

    def record_success(self, current: ActiveRound, now: float) -> None:
        """A round that somebody asked for leaves the periodic ones as they are."""
        self._failures = 0
        self.problem = ""
        self.not_before = 0.0
        if current.ticket is None:
            self.due_clock = self._next_clock(min(current.clocks.values()))
            self.not_before = now + PAUSE if self._job.strategy.stores else 0.0

    def repeat_soon(self, current: ActiveRound, now: float) -> None:
        """A full round was no consistent state: try again at the next clock."""
        mixed_clocks = len({ref.clock for ref, _ in current.objects}) > 1
        self.due_clock = max(current.clocks.values()) + 1
        # a shard or a block was missing: give it a moment
        self.not_before = 0.0 if mixed_clocks else now + BACKOFF

    def record_failure(self, why: str, now: float) -> float:
        """Seconds until the next attempt."""
        self._failures += 1
        self.problem = why
        pause = min(BACKOFF_MOST, BACKOFF * 2.0 ** min(self._failures - 1, 8))
        self.not_before = now + pause
        return pause

    def _next_clock(self, clock: int) -> int:
        """0 where acknowledgements wait for rounds: a later one would never come."""
        return 0 if self._job.strategy.stores else clock + self._job.checkpoint.every
