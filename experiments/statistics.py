"""Means and reductions with 95 % confidence intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

LEVEL = 0.95
RESAMPLES = 2000


@dataclass(frozen=True)
class Estimate:
    """A number and its interval. With one trial, or none that differs, the interval is the number."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"

    @property
    def percent(self) -> str:
        return f"{self.value:.0%} [{self.low:.0%}, {self.high:.0%}]"

    @property
    def document(self) -> dict[str, float]:
        return {"value": self.value, "low": self.low, "high": self.high}


def mean(values: Sequence[float]) -> Estimate:
    """By Student's t."""
    sample = np.asarray(values, dtype=np.float64)
    middle = float(sample.mean())
    error = float(stats.sem(sample)) if len(sample) > 1 else 0.0
    if error == 0:
        return Estimate(middle, middle, middle)
    low, high = stats.t.interval(LEVEL, len(sample) - 1, loc=middle, scale=error)
    return Estimate(middle, float(low), float(high))


def reduction(values: Sequence[float], baseline: Sequence[float], seed: int = 0) -> Estimate:
    """1 - mean(values) / mean(baseline), of pairs from the same trials; the interval is a bootstrap over trials."""
    new, old = np.asarray(values, dtype=np.float64), np.asarray(baseline, dtype=np.float64)
    if old.mean() == 0:
        return Estimate(0.0, 0.0, 0.0)
    middle = float(1 - new.mean() / old.mean())
    if len(new) < 2 or (np.ptp(new) == 0 and np.ptp(old) == 0):
        return Estimate(middle, middle, middle)

    def ratio(some: Any, others: Any, axis: int = -1) -> Any:
        below = others.mean(axis=axis)
        return 1 - some.mean(axis=axis) / np.where(below == 0, np.nan, below)

    draw = stats.bootstrap(
        (new, old),
        ratio,
        paired=True,
        n_resamples=RESAMPLES,
        confidence_level=LEVEL,
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    spread = draw.bootstrap_distribution
    low, high = np.nanquantile(spread, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(middle, float(low), float(high))
