"""Losses of a run as arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class LossSeries:
    """Losses of whole clocks, each finite, by ascending clock; clocks without one are left out."""

    clocks: NDArray[np.int64]
    losses: NDArray[np.float64]

    @classmethod
    def of(cls, found: Mapping[int, float]) -> Self:
        clocks = np.array(sorted(found), np.int64)
        losses = np.array([found[int(clock)] for clock in clocks], np.float64)
        return cls(clocks[np.isfinite(losses)], losses[np.isfinite(losses)])
