"""When the next periodic round begins: at which clock, and how long after a failure."""

from __future__ import annotations

from dataclasses import replace

from scar.checkpoints import Checkpoint
from scar.placement import Epoch
from scar.tables import Job
from scar_checkpoint.core.round_policy import RoundPolicy
from scar_checkpoint.core.rounds import ActiveRound
from scar_runtime.checkpoint.manifest import RoundPlan
from scar_runtime.checkpoint.running_checkpoint import RunningCheckpoint

PAUSE = 0.05  # seconds between rounds for which acknowledgements wait
BACKOFF = 0.5  # seconds until a failed round is tried again; doubled up to BACKOFF_MOST
BACKOFF_MOST = 15.0


class RoundSchedule:
    """``due_clock``: the open clock for which the next round waits; ``not_before``: the earliest time.
    ``saves_all``: shards take for saved what cannot be read any more, so the next round is of all blocks.
    """

    def __init__(self, job: Job) -> None:
        self.due_clock = 0
        self.not_before = 0.0
        self.saves_all = False
        self.problem = ""  # why the last round failed; empty: it did not
        self._job = job
        self._failures = 0
        self._policy = RoundPolicy(job)
        self.due_clock = self._next_clock(0)

    @property
    def plan(self) -> RoundPlan | None:
        """What is chosen for periodic rounds; None: the job's own numbers."""
        return self._policy.plan

    @property
    def checkpoint(self) -> Checkpoint:
        """How rounds are made now: as the job says, or as it is chosen."""
        policy = self._job.checkpoint
        if self.saves_all:
            return replace(policy, selection="full", fraction=1.0)
        return policy if self.plan is None else replace(policy, fraction=self.plan.fraction)

    def resume(self, running: RunningCheckpoint, now: float) -> None:
        """Go on from what could be read of the running checkpoint."""
        manifest = running.manifest
        self._policy.resume(manifest.plan, manifest.epoch, manifest.clock, now)
        self.saves_all = bool(running.passed_over or running.unreadable)
        self.due_clock = 0 if self.saves_all else self._next_clock(manifest.clock)

    def follow_epoch(self, epoch: Epoch) -> None:
        """After a rollback the job goes on from an earlier clock."""
        self._policy.record_epoch(epoch)
        if epoch.rollback:
            self.due_clock = min(self.due_clock, self._next_clock(epoch.clock))

    def skip_to(self, clock: int) -> None:
        """Somebody else has committed a round of this clock."""
        self.due_clock = max(self.due_clock, self._next_clock(clock))

    def hasten(self, now: float) -> bool:
        """Whether the next round begins at an earlier clock, as the one it was to wait for is far longer in
        coming than was meant.
        """
        clock = self._policy.overdue_clock(now)
        if clock is None or clock >= self.due_clock:
            return False
        self.due_clock = clock
        return True

    def record_success(self, current: ActiveRound, now: float) -> None:
        """A round that somebody asked for leaves the periodic ones as they are."""
        self._failures = 0
        self.problem = ""
        self.not_before = 0.0
        if current.ticket is None:
            self.saves_all = self.saves_all and bool(current.missed)
            self._policy.record_round(current, now)
            self.due_clock = self._next_clock(min(current.clocks.values()))
            self.not_before = now + PAUSE if self._job.strategy.stores else 0.0

    def repeat_soon(self, current: ActiveRound, now: float) -> None:
        """A full round was no consistent state: try again at the next clock."""
        mixed_clocks = len({ref.clock for ref, _ in current.objects}) > 1
        self.due_clock = self._unless_awaited(max(current.clocks.values()) + 1)
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
        every = self.plan.every if self.plan is not None else self._job.checkpoint.every
        return self._unless_awaited(clock + every)

    def _unless_awaited(self, clock: int) -> int:
        """0 where acknowledgements wait for rounds: a later clock would never come."""
        return 0 if self._job.strategy.stores else clock
