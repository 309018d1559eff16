"""What came out of a run."""

from __future__ import annotations

from dataclasses import dataclass, field

from scar_chaos.core.schedule import Schedule
from scar_chaos.oracles.cost import FaultCost
from scar_chaos.oracles.verdict import Verdict


@dataclass(frozen=True)
class GroupResult:
    """Faults that happened together.

    ``missed``: how many did not hit their moment. ``healed``: seconds until all was well.
    """

    faults: tuple[str, ...]
    missed: int
    healed: float
    cost: FaultCost
    verdict: Verdict


@dataclass(frozen=True)
class RunResult:
    """One run.

    ``workers``: how many lives each had. ``error``: why it could not go on: the cluster did not heal, or does
    not answer.
    """

    schedule: Schedule
    groups: tuple[GroupResult, ...] = ()
    workers: dict[str, int] = field(default_factory=dict)
    error: str = ""
    seconds: float = 0.0

    @property
    def violations(self) -> list[str]:
        return [text for group in self.groups for text in group.verdict.violations]

    @property
    def passed(self) -> bool:
        return not self.violations and not self.error
