"""The loss of every clock so far, thinned so that a long run is sent as a bounded number of points. Pure.

Thinned by M4 (Jugel et al., VLDB 2014): of each interval of clocks the first, the last, the lowest and the
highest point stay, so that no peak and no dip is lost at the width of a screen.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

CurvePoint = tuple[int, float]  # clock, loss

MAX_INTERVALS = 500


class LossCurve:
    """Intervals of ``width`` clocks, a power of two; it doubles when there would be more than ``limit``."""

    def __init__(self, limit: int = MAX_INTERVALS) -> None:
        self.width = 1
        self._limit = limit
        self._intervals: dict[int, list[CurvePoint]] = {}

    def add_losses(self, losses: Mapping[int, float]) -> int:
        """Take in losses by clock, in any order, known ones again, too.

        Returns the first clock from which on points may have changed; -1: none has. A loss that is not finite
        cannot be drawn and is left out.
        """
        fresh = {clock: loss for clock, loss in losses.items() if math.isfinite(loss)}
        if not fresh:
            return -1
        widened = self._widen_for(min(fresh), max(fresh))
        grouped: dict[int, list[CurvePoint]] = {}
        for point in fresh.items():
            grouped.setdefault(point[0] // self.width, []).append(point)
        changed = [index for index, points in grouped.items() if self._add_points(index, points)]
        if widened:
            return 0
        return min(changed, default=-1) * self.width if changed else -1

    def points_from(self, clock: int = 0) -> list[CurvePoint]:
        """Ascending; of the intervals that begin at ``clock`` or later."""
        chosen = sorted(index for index in self._intervals if index * self.width >= clock)
        return [point for index in chosen for point in self._intervals[index]]

    def _add_points(self, index: int, points: list[CurvePoint]) -> bool:
        before = self._intervals.get(index, [])
        self._intervals[index] = extreme_points([*before, *points])
        return self._intervals[index] != before

    def _widen_for(self, low: int, high: int) -> bool:
        """Double the width until all clocks from ``low`` to ``high`` and the known ones fit."""
        first = min([low, *(index * self.width for index in self._intervals)])
        last = max([high, *((index + 1) * self.width - 1 for index in self._intervals)])
        before = self.width
        while last // self.width - first // self.width >= self._limit:
            self.width *= 2
        if self.width == before:
            return False
        known = [point for points in self._intervals.values() for point in points]
        self._intervals = {}
        for point in known:
            self._intervals.setdefault(point[0] // self.width, []).append(point)
        self._intervals = {index: extreme_points(points) for index, points in self._intervals.items()}
        return True


def extreme_points(points: Iterable[CurvePoint]) -> list[CurvePoint]:
    """The first, the last, the lowest and the highest, ascending; each once."""
    ordered = sorted(set(points))
    lowest = min(ordered, key=lambda point: point[1])
    highest = max(ordered, key=lambda point: point[1])
    return sorted({ordered[0], ordered[-1], lowest, highest})
