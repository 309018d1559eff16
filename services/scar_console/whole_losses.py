"""Every loss of a run, exactly and in little memory, as long as somebody may ask what a failure has cost."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from scar_admin.loss_series import LossSeries

MAX_CLOCKS = 1 << 21  # 16 MB; of older ones the lowest loss is kept


class WholeLosses:
    """Losses by clock, the newest ``limit`` of them and the lowest of those before."""

    def __init__(self, limit: int = MAX_CLOCKS) -> None:
        self._limit = limit
        self._first = 0  # clock of the first place
        self._losses = np.full(0, np.nan)
        self._lowest: tuple[float, int] | None = None  # of those that were let go: loss, clock

    def add(self, losses: Mapping[int, float]) -> float:
        """In any order, known ones again, too. Returns the first clock whose loss was not known; infinity:
        all were.
        """
        if not losses:
            return math.inf
        if not len(self._losses):
            self._first = max(min(losses), max(losses) + 1 - self._limit)
        self._make_room(max(losses))
        first = min((clock for clock, loss in losses.items() if self._is_new(clock, loss)), default=math.inf)
        for clock, loss in losses.items():
            if clock >= self._first:
                self._losses[clock - self._first] = loss
            elif math.isfinite(loss):
                self._lowest = min((loss, clock), self._lowest or (loss, clock))
        return first

    def series(self) -> LossSeries:
        found = np.flatnonzero(np.isfinite(self._losses))
        clocks = (found + self._first).astype(np.int64)
        losses = self._losses[found]
        if self._lowest is not None:
            loss, clock = self._lowest
            return LossSeries(np.append(clock, clocks), np.append(loss, losses))
        return LossSeries(clocks, losses)

    def _is_new(self, clock: int, loss: float) -> bool:
        """Of clocks that were let go only a loss that is the lowest."""
        if clock >= self._first:
            return math.isfinite(loss) and self._losses[clock - self._first] != loss
        return math.isfinite(loss) and (self._lowest is None or (loss, clock) < self._lowest)

    def _make_room(self, newest: int) -> None:
        needed = newest + 1 - self._first
        if needed <= len(self._losses):
            return
        if needed > self._limit:
            self._let_go(needed - self._limit // 2)
            needed = newest + 1 - self._first
        grown = np.full(min(self._limit, max(64, 2 * needed)), np.nan)
        grown[: len(self._losses)] = self._losses
        self._losses = grown

    def _let_go(self, count: int) -> None:
        """The oldest places."""
        old = self._losses[:count]
        if np.isfinite(old).any():
            at = int(np.nanargmin(np.where(np.isfinite(old), old, np.nan)))
            lowest = (float(old[at]), self._first + at)
            self._lowest = min(lowest, self._lowest or lowest)
        self._losses = self._losses[count:]
        self._first += count
