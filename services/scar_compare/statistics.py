"""Means and reductions with 95 % confidence intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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

    def __format__(self, form: str) -> str:
        return f"{self.value:{form}} [{self.low:{form}}, {self.high:{form}}]"

    def __str__(self) -> str:
        return f"{self:.2f}"

    @property
    def percent(self) -> str:
        return f"{self:.0%}"

    @property
    def document(self) -> dict[str, float]:
        return {"value": self.value, "low": self.low, "high": self.high}


def mean_estimate(values: Sequence[float]) -> Estimate:
    """By Student's t."""
    sample = np.asarray(values, dtype=np.float64)
    middle = float(sample.mean())
    error = float(stats.sem(sample)) if len(sample) > 1 else 0.0
    if error == 0:
        return Estimate(middle, middle, middle)
    low, high = stats.t.interval(LEVEL, len(sample) - 1, loc=middle, scale=error)
    return Estimate(middle, float(low), float(high))


def reduction_estimate(
    values: Sequence[float], baseline: Sequence[float], centre: Callable[..., Any] = np.mean
) -> Estimate:
    """1 - mean(values) / mean(baseline), of pairs from the same trials.

    The interval is a bootstrap over pairs.

    ``centre``: ``np.median`` instead, for times on a busy machine.
    """
    new = np.asarray(values, dtype=np.float64)
    old = np.asarray(baseline, dtype=np.float64)
    if centre(old) == 0:
        return Estimate(0.0, 0.0, 0.0)
    middle = float(1 - centre(new) / centre(old))
    if len(new) < 2 or (np.ptp(new) == 0 and np.ptp(old) == 0):
        return Estimate(middle, middle, middle)
    picked = np.random.default_rng(0).integers(0, len(new), (RESAMPLES, len(new)))
    below = centre(old[picked], axis=1)
    # a resample may hold no cost at all
    spread = (1 - centre(new[picked], axis=1)[below != 0] / below[below != 0]).tolist()
    low, high = np.quantile(spread, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(middle, float(low), float(high))
