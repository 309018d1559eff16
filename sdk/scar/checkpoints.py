"""When the running checkpoint is saved, and how much of it at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scar.errors import ConfigError, use_one_of

SELECTIONS = ("priority", "round", "random", "full")


@dataclass(frozen=True)
class CheckpointBudget:
    """What saving may cost, at most. ``stall_share``: of the time of training, which stands still while
    blocks are copied; ``bytes_per_second``: that are written, on average; 0: without limit.
    """

    stall_share: float = 0.01
    bytes_per_second: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.stall_share <= 1:
            raise ConfigError(f"stall_share {self.stall_share} is not in (0, 1]", "0.01 is one per cent")
        if not 0 <= self.bytes_per_second < math.inf:
            raise ConfigError(
                f"bytes_per_second {self.bytes_per_second} is no number from 0", "Set 0 for no limit"
            )


@dataclass(frozen=True)
class Checkpoint:
    """When to save and how much: a fraction ``r`` of the blocks every ``max(1, r * period)`` clocks (seed
    000, section 4.2).

    ``budget``: the coordinator chooses fraction and period by what it measures, within this
    (:meth:`auto`); those that are set here are where it begins. None: they stay as they are.
    """

    selection: str = "priority"
    fraction: float = 0.125
    period: int = 8
    keep: int = 3
    budget: CheckpointBudget | None = None

    @classmethod
    def auto(
        cls,
        stall_share: float = 0.01,
        bytes_per_second: float = 0.0,
        selection: str = "priority",
        keep: int = 3,
    ) -> Checkpoint:
        """Choose fraction and period as the run shows what a round costs and how much failures take
        (docs/training.md), within a budget.
        """
        return cls(selection, keep=keep, budget=CheckpointBudget(stall_share, bytes_per_second))

    def __post_init__(self) -> None:
        if self.selection not in SELECTIONS:
            raise ConfigError(
                f"selection {self.selection!r} is unknown", use_one_of(self.selection, SELECTIONS)
            )
        if not 0 < self.fraction <= 1:
            raise ConfigError(f"checkpoint fraction {self.fraction} is not in (0, 1]")
        if self.period < 1 or self.keep < 1:
            raise ConfigError("checkpoint period and keep must be at least 1")

    @property
    def every(self) -> int:
        """Clocks between rounds."""
        return max(1, round(self.effective_fraction * self.period))

    @property
    def saves_changes(self) -> bool:
        """A round saves everything that has changed since it was saved, and nothing else."""
        return self.selection == "priority" and self.fraction == 1 and self.budget is None

    @property
    def effective_fraction(self) -> float:
        return 1.0 if self.selection == "full" else self.fraction
