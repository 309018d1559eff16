"""How fast a worker gets on, and what its time goes to."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

WEIGHT = 0.1  # of the newest clock in the averages: they are over about the last ten


@dataclass(frozen=True)
class TimeSplit:
    """Seconds of a worker's thread.

    ``pull``: values are under way. ``compute``: the user's own code. ``push``: sending, and until it is
    acknowledged. ``wait``: until shards could serve a pull, for which other workers or a recovery let it
    wait.
    """

    pull: float = 0.0
    compute: float = 0.0
    push: float = 0.0
    wait: float = 0.0

    @property
    def total(self) -> float:
        return self.pull + self.compute + self.push + self.wait

    def add_split(self, other: TimeSplit) -> TimeSplit:
        return TimeSplit(
            self.pull + other.pull,
            self.compute + other.compute,
            self.push + other.push,
            self.wait + other.wait,
        )

    def scale_by(self, factor: float) -> TimeSplit:
        return TimeSplit(factor * self.pull, factor * self.compute, factor * self.push, factor * self.wait)


@dataclass
class PullTime:
    """Of a pull that keeps the thread. ``moving``: since when values are under way; infinity: not yet."""

    moving: float = math.inf


class Pace:
    """Of one thread; others may read. The first clock is not counted: its begin was a wait for the others.

    ``per_clock``: averages over about the last ten clocks. ``spent``: sums over all ``clocks`` that are
    counted.
    """

    def __init__(self) -> None:
        self.per_clock = TimeSplit()
        self.spent = TimeSplit()
        self.clocks = 0
        self._pulling = self._pushing = self._waiting = 0.0  # in the open clock
        self._last: float | None = None

    @property
    def seconds_per_clock(self) -> float:
        """Moving average; 0 before two clocks have ended."""
        return self.per_clock.total

    @property
    def seconds_since_clock(self) -> float:
        """Seconds since the last clock ended; infinity before that."""
        return time.monotonic() - self._last if self._last is not None else math.inf

    def note_pull(self, began: float, moving: float = math.inf) -> None:
        """A pull has kept the thread since ``began``; its values are under way since ``moving``, if they are:
        before, they were waited for.
        """
        now = time.monotonic()
        moving = min(max(began, moving), now)
        self._waiting += moving - began
        self._pulling += now - moving

    @contextmanager
    def time_pull(self) -> Iterator[PullTime]:
        """A pull keeps the thread as long as it lasts, also when it fails."""
        began = time.monotonic()
        timed = PullTime()
        try:
            yield timed
        finally:
            self.note_pull(began, timed.moving)

    @contextmanager
    def time_push(self) -> Iterator[None]:
        """The same of a push."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.note_push(began)

    def note_push(self, began: float) -> None:
        """A push has kept the thread since ``began``."""
        self._pushing += time.monotonic() - began

    def tick(self) -> None:
        """A clock has ended."""
        now = time.monotonic()
        if self._last is not None:
            own = now - self._last - self._pulling - self._pushing - self._waiting
            took = TimeSplit(self._pulling, max(0.0, own), self._pushing, self._waiting)
            self.per_clock = (
                self.per_clock.scale_by(1 - WEIGHT).add_split(took.scale_by(WEIGHT)) if self.clocks else took
            )
            self.spent = self.spent.add_split(took)
            self.clocks += 1
        self._pulling = self._pushing = self._waiting = 0.0
        self._last = now
