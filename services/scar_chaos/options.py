"""What the command line asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scar_chaos.core.counting_job import strategy_options
from scar_chaos.core.fault_syntax import parse_faults
from scar_chaos.core.faults import Fault
from scar_chaos.core.schedule import PROFILES, FaultKinds, FaultSpace

GROUPS = 3  # of faults in a run
SHARDS = (2, 3)  # to draw from


@dataclass(frozen=True)
class ChaosOptions:
    """None: drawn, or what the release has.

    ``seed``: of the first run; ``runs``: how many, with the seeds that follow. ``report``: a file for all
    reports as JSON. ``output``: "text" or "json" on standard output. ``faults``: as written; none: drawn.
    """

    seed: int = 1
    runs: int = 1
    groups: int = GROUPS
    workers: int | None = None
    shards: int | None = None
    report: Path | None = None
    output: str = "text"
    faults: Sequence[str] = ()
    strategy: str = ""
    profile: str = "default"

    def replay_command(self, command: str, seed: int) -> str:
        """The command line that plays this seed again."""
        given: dict[str, object] = {
            "groups": self.groups if self.groups != GROUPS else None,
            "workers": self.workers,
            "shards": self.shards,
            "strategy": self.strategy or None,
            "profile": self.profile if self.profile != "default" else None,
        }
        words = [command]
        words += [f"--{name} {value}" for name, value in given.items() if value is not None]
        words += [f"--fault {fault}" for fault in self.faults]
        return " ".join([*words, f"--seed {seed}"])

    def parse_faults(self, kinds: FaultKinds) -> list[Fault]:
        """Raises :class:`scar.errors.ConfigError` for one that cannot be done here."""
        return [fault for text in self.faults for fault in parse_faults(text, kinds)]

    def fault_space(self, kinds: FaultKinds, shards: Sequence[int] = SHARDS) -> FaultSpace:
        """What may be drawn. ``shards``: how many there may be when no option says it."""
        return FaultSpace(
            kinds=kinds,
            shards=shards if self.shards is None else (self.shards,),
            workers=(1, 2) if self.workers is None else (self.workers,),
            groups=self.groups,
            fixed=strategy_options(self.strategy) if self.strategy else {},
            profile=PROFILES[self.profile],
        )
