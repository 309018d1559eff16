"""The barrier of one shard: which clocks are finished by whom, which one is open, and the losses.

Nothing here is per block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scar.losses import LossPart, LossPoint, combine_parts

DONE = 1 << 63  # "finished" of a worker whose work is done
LOSSES_KEPT = 1 << 16  # closed clocks
PARTS_KEPT = 64  # closed clocks without a loss, whose missing parts may come with marks that are given again
OPEN_KEPT = 1 << 12  # open clocks with parts: nothing else bounds how far ASP's fastest worker is ahead


@dataclass(slots=True)
class ClockMark:
    """Clocks that a worker has finished, and the newest epoch in which it said so.

    ``done``: it will not push any more.
    """

    real: int
    epoch: int
    done: bool = False

    @property
    def finished(self) -> int:
        return DONE if self.done else self.real


class Barrier:
    """The open clock: all clocks below it are closed.

    It rises when every worker of the epoch has finished it.
    """

    def __init__(self) -> None:
        self.clock = 0
        self.losses: dict[int, LossPoint] = {}  # by clock; only whole ones, and none ever changes
        self._marks: dict[str, ClockMark] = {}  # by worker name: a new incarnation inherits
        self._parts: dict[int, dict[str, LossPart]] = {}  # of clocks without a loss, by worker name
        self._newest = -1  # clock of the newest loss
        self._reached = 0  # most clocks that any worker has really finished

    def mark_finished(self, worker: str, finished: int, epoch: int, part: LossPart | None) -> None:
        """A worker has finished ``finished`` clocks; ``part`` is of the loss of the last of them.

        A mark that is given again brings its part to a shard that lacks it, be the clock closed or not.
        """
        mark = self._marks.setdefault(worker, ClockMark(0, 0))
        mark.epoch = max(mark.epoch, epoch)
        mark.done = mark.done or finished >= DONE
        if finished < DONE:
            mark.real = max(mark.real, finished)
            self._reached = max(self._reached, finished)
        if part is not None and 0 < finished < DONE and finished - 1 not in self.losses:
            self._add_part(finished - 1, worker, part)

    def mark_returned(self, worker: str) -> None:
        """A new incarnation of a worker that had left: from now on it is waited for again."""
        if worker in self._marks:
            self._marks[worker].done = False

    def finished_clocks(self, worker: str) -> int:
        mark = self._marks.get(worker)
        return mark.finished if mark else 0

    def all_finished(self) -> dict[str, int]:
        return {worker: mark.finished for worker, mark in self._marks.items()}

    def next_clock(self, workers: Sequence[str], since: int) -> int:
        """Where the open clock may rise to: only marks given in epoch ``since`` or later count."""
        marks = [self._marks.get(worker) for worker in workers]
        counted = [mark.finished for mark in marks if mark is not None and mark.epoch >= since]
        if not counted or len(counted) < len(workers):
            return self.clock
        # Workers that are done wait for nobody; still, no clock beyond the last real one ever closes.
        return max(self.clock, min(min(counted), self._reached))

    def close_clocks(self, upto: int) -> None:
        """Raise the open clock to ``upto``.

        Clocks below whose parts make a whole have a loss, the others none.
        """
        for clock in sorted(clock for clock in self._parts if self.clock <= clock < upto):
            self._sum_parts(clock)
        self.clock = max(self.clock, upto)
        for clock in [clock for clock in self._parts if clock < self.clock - PARTS_KEPT]:
            del self._parts[clock]

    def _add_part(self, clock: int, worker: str, part: LossPart) -> None:
        """When there is no room the clock has no loss: of a fast worker's clocks only some will have one."""
        if clock not in self._parts and len(self._parts) >= PARTS_KEPT + OPEN_KEPT:
            return
        self._parts.setdefault(clock, {})[worker] = part
        if clock < self.clock:
            self._sum_parts(clock)

    def _sum_parts(self, clock: int) -> None:
        loss = combine_parts(clock, self._parts[clock].values())
        if loss is not None:
            self.add_loss(loss)

    def add_loss(self, loss: LossPoint) -> None:
        """The loss of a clock, from its parts or from a worker that has heard it elsewhere.

        The first one stays.
        """
        if loss.clock in self.losses:
            return
        self.losses[loss.clock] = loss
        self._newest = max(self._newest, loss.clock)
        self._parts.pop(loss.clock, None)
        if len(self.losses) > LOSSES_KEPT:
            del self.losses[next(iter(self.losses))]

    def drop_parts(self) -> None:
        """A rollback: parts that wait for others are of a model that no longer exists."""
        self._parts.clear()

    def awaited_parts(self, clock: int, workers: Sequence[str]) -> list[str]:
        """Of whom a part of this clock's loss may still come."""
        return (
            [] if clock in self.losses else [name for name in workers if self.finished_clocks(name) <= clock]
        )

    def losses_from(self, clock: int) -> list[LossPoint]:
        """Of this clock and later ones, ascending. Few of many are found without a look at all."""
        if self._newest - clock < len(self.losses):
            return [self.losses[one] for one in range(clock, self._newest + 1) if one in self.losses]
        return [self.losses[one] for one in sorted(self.losses) if one >= clock]

    @property
    def last_loss(self) -> LossPoint | None:
        """The newest one."""
        return self.losses.get(self._newest)
