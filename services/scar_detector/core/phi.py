"""φ accrual (Hayashibara et al. 2004): how surprising is this silence, given the intervals seen so far?

φ(t) = -log10 P(interval > t) for a normal distribution with the window's mean and deviation. φ = 8 is a
chance of one in 10^8.
"""

from __future__ import annotations

import math
from collections import deque

_LN10 = math.log(10.0)
_UNIT = 1e9  # intervals are summed in whole nanoseconds: sums that stay exact as values come and go
_FAR = 20.0  # beyond this erfc is close to the smallest double; the asymptotic series is exact to 1e-9 there


def phi(silence: float, mean: float, deviation: float) -> float:
    """Suspicion after ``silence`` seconds; finite and increasing everywhere, where the plain formula
    becomes infinite.
    """
    x = (silence - mean) / (deviation * math.sqrt(2.0))
    if x < _FAR:
        return max(0.0, -math.log10(0.5 * math.erfc(x)))
    series = 1.0 - 1.0 / (2.0 * x * x) + 3.0 / (4.0 * x**4) - 15.0 / (8.0 * x**6)
    return (x * x + math.log(2.0 * x * math.sqrt(math.pi)) - math.log(series)) / _LN10


class Intervals:
    """The last ``window`` intervals in seconds."""

    def __init__(self, window: int, floor: float, longest: float) -> None:
        """``floor``: least deviation, since after a calm past a small jitter must not look like death."""
        self._seen: deque[int] = deque(maxlen=window)
        self._sum = self._squares = 0  # of what was seen
        self._floor = floor
        self._normal: tuple[float, float] | None = None  # mean and deviation of what was seen
        # longer ones count as this, else one pause would blind us for the whole window
        self._longest = longest

    def __len__(self) -> int:
        return len(self._seen)

    def add_interval(self, interval: float) -> None:
        if len(self._seen) == self._seen.maxlen:
            self._count(self._seen[0], -1)
        new = round(min(interval, self._longest) * _UNIT)
        self._seen.append(new)
        self._count(new, 1)
        self._normal = None

    def _count(self, interval: int, times: int) -> None:
        self._sum += times * interval
        self._squares += times * interval * interval

    def clear(self) -> None:
        self._seen.clear()
        self._sum = self._squares = 0
        self._normal = None

    def phi(self, silence: float) -> float:
        """0 while nothing is known."""
        if not self._seen:
            return 0.0
        if self._normal is None:
            number = len(self._seen)
            deviation = math.sqrt(number * self._squares - self._sum**2) / number / _UNIT
            self._normal = self._sum / number / _UNIT, max(self._floor, deviation)
        return phi(silence, *self._normal)
