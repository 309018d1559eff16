"""What can be compared, by name, and what kills what when."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scar.errors import ConfigError
from scar.strategies import STRATEGIES
from scar.tables import Checkpoint
from scar.worker_strategies import WORKER_STRATEGIES

PERIOD = 8  # clocks between full checkpoints; priority rounds write as much in as many
UNDISTURBED = "undisturbed"
USUAL = ("partial", "full", "sync-chain", "ps", "ckpt", "ignr")
SCHEDULE = ("ps-1@20", "worker-1@40")


def names() -> tuple[str, ...]:
    """Server-side strategies, then worker-side ones."""
    return (*STRATEGIES, *WORKER_STRATEGIES, "ignr-drop")


def options_of(name: str) -> Mapping[str, Any]:
    """Of :class:`scar.Job`. What a strategy leaves open is as usual: recovery "partial", worker_recovery "ignr".

    Raises :class:`ConfigError` for an unknown name.
    """
    if name not in names():
        raise ConfigError(f"strategy {name!r} is unknown", f"Use some of {', '.join(names())}")
    worker = name.removesuffix("-drop") if name not in STRATEGIES else "ignr"
    chosen: dict[str, Any] = {"recovery": name if name in STRATEGIES else "partial", "worker_recovery": worker}
    if name == "ignr-drop":
        chosen["share"] = "drop"
    strategy = STRATEGIES[chosen["recovery"]]
    if strategy.stores:  # an acknowledgement waits for a round: they run all the time, and no worker waits for another
        return {**chosen, "consistency": "asp", "checkpoint": Checkpoint("priority", 1.0, 1)}
    whole = strategy.rollback or WORKER_STRATEGIES[worker].rollback
    return {**chosen, "checkpoint": Checkpoint("full", 1.0, PERIOD) if whole else Checkpoint("priority", 1 / PERIOD, PERIOD)}


@dataclass(frozen=True)
class Kill:
    """SIGKILL to ``target`` as soon as ``clock`` clocks are closed."""

    target: str
    clock: int


def schedule(texts: Sequence[str]) -> tuple[Kill, ...]:
    """In order of their clocks. Raises :class:`ConfigError` for what is no ``ps-1@20``."""
    found = []
    for text in texts:
        match = re.fullmatch(r"((?:ps|worker)-\d+)@(\d+)", text)
        if match is None:
            raise ConfigError(f"kill {text!r} cannot be read", "Write a server or worker and a clock: ps-1@20, worker-0@30")
        found.append(Kill(match[1], int(match[2])))
    return tuple(sorted(found, key=lambda kill: kill.clock))
