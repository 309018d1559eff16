"""How a job survives the loss of a worker (seed 004), as facts that the services ask for: none of them knows
a strategy's name.

`docs/strategies.md` says what each costs and promises.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from scar.errors import ConfigError, use_one_of

SHARES = ("takeover", "drop")


@dataclass(frozen=True)
class WorkerStrategy:
    """One choice of :attr:`scar.Job.worker_recovery`, with :attr:`scar.Job.share`.

    ``seat``: a dead worker's rank and share of the data stay its own until it is back, else the others share
    them out. ``waits``: clocks do not close without it. ``rollback``: its death takes everything back to the
    last consistent checkpoint.
    """

    name: str
    seat: bool
    waits: bool = False
    rollback: bool = False


WORKER_STRATEGIES: Mapping[str, WorkerStrategy] = {
    strategy.name: strategy
    for strategy in (
        WorkerStrategy("ignr", seat=False),
        WorkerStrategy("ps", seat=True, waits=True),
        WorkerStrategy("ckpt", seat=True, waits=True, rollback=True),
    )
}


def find_worker_strategy(name: str, share: str) -> WorkerStrategy:
    """``share``: what becomes of the data of one that nobody waits for. Raises :class:`ConfigError` with
    the known names.
    """
    if name not in WORKER_STRATEGIES:
        raise ConfigError(f"worker_recovery {name!r} is unknown", use_one_of(name, WORKER_STRATEGIES))
    if share not in SHARES:
        raise ConfigError(f"share {share!r} is unknown", use_one_of(share, SHARES))
    strategy = WORKER_STRATEGIES[name]
    if share == "takeover":
        return strategy
    if strategy.waits:
        raise ConfigError(
            f"worker_recovery {name!r} waits for a dead worker: its share is never dropped",
            "Leave share out, or use ignr",
        )
    return WorkerStrategy(name, seat=True)
