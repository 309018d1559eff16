"""When the running checkpoint is saved, and how much of it at a time."""

from __future__ import annotations

from dataclasses import dataclass

from scar.errors import ConfigError, use_one_of

SELECTIONS = ("priority", "round", "random", "full")


@dataclass(frozen=True)
class Checkpoint:
    """When to save and how much: a fraction ``r`` of the blocks every ``max(1, r * period)`` clocks (seed
    000, section 4.2).
    """

    selection: str = "priority"
    fraction: float = 0.125
    period: int = 8
    keep: int = 3

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
        return self.selection == "priority" and self.fraction == 1

    @property
    def effective_fraction(self) -> float:
        return 1.0 if self.selection == "full" else self.fraction
