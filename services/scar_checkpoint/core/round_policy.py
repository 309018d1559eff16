"""How much periodic rounds save, and how often, where the job gives a budget in place of numbers.

Copies that are ``T`` seconds old on average T/2 cost a failure about as much training. To save all blocks
once (a *sweep*) stalls training for ``S`` seconds, and failures take back the share ``L`` of all blocks in a
second. Per second of training, saving costs S/T and failures L T/2 seconds, least at T = sqrt(2 S / L):
Young's formula, by shares. The budget may ask for longer sweeps. A sweep is cut into rounds of 1/8 of the
blocks (seed 000, section 4.2), into fewer where a round would not be over before the next. A plan counts in
clocks; when they become so slow that its round takes twice the time it was meant for, the round begins.

That a failure costs as much as its blocks are old is an upper bound: partial recovery costs less.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace
from statistics import median
from typing import NamedTuple

from scar.placement import BlockSource, Epoch
from scar.tables import Job
from scar_checkpoint.core.rounds import ActiveRound
from scar_runtime.checkpoint.manifest import RoundPlan

LEARNED = 3  # rounds that are measured before the first choice
RECENT = 8  # rounds whose median counts
PRIOR_SECONDS = 3600.0  # before anything is known, a shard is expected to die in so many
SWEEP_PARTS = 8  # rounds of a sweep
SHORTEST = 0.1  # seconds of a sweep
LONGEST = 600.0  # that are chosen; a budget may ask for more
ROUND_SHARE = 0.5  # of the time between two rounds that one may take
OVERDUE = 2.0  # times the seconds between two rounds that were meant
CHANGE = 1.25  # by which factor a plan has to differ from the one in use
LOST_FROM = (BlockSource.OBJECT, BlockSource.INITIAL)


class RoundCost(NamedTuple):
    """One round: seconds between its clocks and those of the one before, by clock; seconds of stall and
    bytes, of a sweep; seconds from its begin to its end.
    """

    clock: float
    stall: float
    bytes: float
    seconds: float


class SweepLimit(NamedTuple):
    """``seconds`` of a sweep, and why not less."""

    seconds: float
    reason: str


class RoundPolicy:
    """``plan``: what counts now; None: the job's own numbers, as it has no budget."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._budget = job.checkpoint.budget
        self._costs: deque[RoundCost] = deque(maxlen=RECENT)
        self._last: tuple[int, float] | None = None  # clock and time of the round before
        self._failures = 0
        self._lost = 0.0
        self._seconds = 0.0
        self._counted = 0  # newest epoch whose failure is counted
        self._waits: tuple[int, float] | None = None  # clock of the newest round, since when for the next one
        self.plan: RoundPlan | None = None
        if self._budget is not None:
            begin = job.checkpoint
            why = f"it begins as the job says, until {LEARNED} rounds are measured"
            self.plan = RoundPlan(begin.effective_fraction, begin.every, why)

    def resume(self, plan: RoundPlan | None, epoch: int, clock: int, now: float) -> None:
        """Go on as a manifest of this epoch and clock says."""
        if self._budget is None or plan is None:
            return
        self.plan = plan
        self._counted = max(self._counted, epoch)
        self._failures = plan.failures
        self._lost = plan.lost
        self._seconds = plan.seconds
        self._waits = clock, now

    def record_epoch(self, epoch: Epoch) -> None:
        """Blocks that came back older than they were: neither from a donor nor from an exact copy."""
        if epoch.cause != "failure" or epoch.number <= self._counted:
            return
        self._counted = epoch.number
        blocks = sum(len(group.ids) for group in epoch.moved if group.source in LOST_FROM)
        lost = 1.0 if epoch.rollback else blocks / self._job.blocks
        if lost:
            self._failures += 1
            self._lost += lost

    def record_round(self, current: ActiveRound, now: float) -> None:
        """A periodic round has ended well."""
        if self._budget is None or not current.clocks:
            return
        clock = min(current.clocks.values())
        began = current.answered_at or now
        if self._last is not None:
            clocks = clock - self._last[0]
            seconds = began - self._last[1]
            self._seconds += max(0.0, seconds)
            if clocks > 0 and seconds > 0 and (cost := self._cost_of(current, seconds / clocks, now)):
                self._costs.append(cost)
        self._last = self._waits = clock, began
        if len(self._costs) >= LEARNED:
            self._choose()

    def overdue_clock(self, now: float) -> int | None:
        """The one after the last round, when clocks have become far slower than the plan takes them to be."""
        meant = self.plan.every * self.plan.clock_seconds if self.plan is not None else 0.0
        if self._waits is None or not meant or now - self._waits[1] <= OVERDUE * meant:
            return None
        return self._waits[0] + 1

    def _cost_of(self, current: ActiveRound, clock: float, now: float) -> RoundCost | None:
        written = sum(ref.bytes for ref, _ in current.objects)
        blocks = sum(ref.blocks for ref, _ in current.objects)
        if not blocks:
            return None
        began = current.answered_at or now
        stall = now - began if self._job.strategy.stalls else current.copy_seconds
        whole = self._job.blocks / blocks
        return RoundCost(clock, stall * whole, written * whole, now - began)

    def _choose(self) -> None:
        assert self.plan is not None
        typical = RoundCost(*(median(values) for values in zip(*self._costs, strict=True)))
        sweep = max(self._limits(typical))
        fraction, every = self._cut_sweep(sweep.seconds, typical)
        chosen = replace(
            self.plan,
            reason=f"all blocks once in {sweep.seconds:.3g} s, {sweep.reason}",
            failures=self._failures,
            lost=self._lost,
            seconds=self._seconds,
            clock_seconds=typical.clock,
        )
        if _differs(fraction, self.plan.fraction) or _differs(every, self.plan.every):
            chosen = replace(chosen, fraction=fraction, every=every)
        self.plan = chosen

    def _limits(self, typical: RoundCost) -> list[SweepLimit]:
        """What asks for how long a sweep; the longest counts."""
        assert self._budget is not None
        expected = 1.0 if self._job.strategy.rollback else 1 / self._job.shards
        rate = (self._lost + expected) / (self._seconds + PRIOR_SECONDS)
        best = min(LONGEST, max(SHORTEST, math.sqrt(2 * typical.stall / rate)))
        seen = f"{self._failures} in {self._seconds:.0f} s" if self._failures else "none yet"
        limits = [
            SweepLimit(
                best, f"where saving ({1e3 * typical.stall:.3g} ms of stall) and failures ({seen}) cost least"
            ),
            SweepLimit(
                typical.stall / self._budget.stall_share,
                f"as the budget allows {100 * self._budget.stall_share:g} % of stall,"
                f" and it stalls for {1e3 * typical.stall:.3g} ms",
            ),
        ]
        if most := self._budget.bytes_per_second:
            needed = f"as the budget allows {most:.3g} bytes a second, and it writes {typical.bytes:.3g}"
            limits.append(SweepLimit(typical.bytes / most, needed))
        return limits

    def _cut_sweep(self, seconds: float, typical: RoundCost) -> tuple[float, int]:
        """Fraction and clocks of a round."""
        parts = 1 if self._job.checkpoint.selection == "full" else SWEEP_PARTS
        least = max(seconds / parts, typical.seconds / ROUND_SHARE, seconds / self._job.blocks)
        every = max(1, math.ceil(least / typical.clock))
        return (1.0 if parts == 1 else min(1.0, every * typical.clock / seconds)), every


def _differs(one: float, other: float) -> bool:
    return max(one, other) > CHANGE * min(one, other)
