"""Which process is killed at which clock, as people write it: ``ps-1@20``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from scar.errors import ConfigError
from scar_compare.trial_plans import recorded_as

DEFAULT_KILLS = ("ps-1@20", "worker-1@40")


@recorded_as("Kill")
@dataclass(frozen=True)
class KillAtClock:
    """SIGKILL to ``target`` as soon as ``clock`` clocks are closed."""

    target: str
    clock: int

    def __str__(self) -> str:
        return f"{self.target}@{self.clock}"


def parse_kills(texts: Sequence[str]) -> tuple[KillAtClock, ...]:
    """The kills, in order of their clocks. Raises :class:`ConfigError` for what is not like ``ps-1@20``."""
    kills = []
    for text in texts:
        match = re.fullmatch(r"((?:ps|worker)-\d+)@(\d{1,18})", text)
        if match is None:
            raise ConfigError(
                f"kill {text!r} cannot be read", "Write a server or worker and a clock: ps-1@20, worker-0@30"
            )
        kills.append(KillAtClock(match[1], int(match[2])))
    return tuple(sorted(kills, key=lambda kill: kill.clock))
