"""How a job survives the loss of a parameter server, as facts that the services ask for: none of them knows a strategy's name.

`docs/strategies.md` says what each costs and promises; seed 003 is the source of all but the first two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from scar.errors import ConfigError


@dataclass(frozen=True)
class Strategy:
    """One choice of :attr:`scar.Job.recovery`.

    ``rollback``: a loss takes every block back to the last consistent checkpoint, else only what was lost comes back.
    ``stalls``: a checkpoint is on the critical path: nothing is applied until it is durable.
    ``replicas``: shards beside its owner that keep a copy of a block; ``period``: updates between two copies (BSP: clocks,
    else pushes to the shard); ``waits``: an acknowledgement waits until the next replica has what it must have.
    """

    name: str
    rollback: bool = False
    stalls: bool = False
    replicas: int = 0
    period: int = 1
    waits: bool = False

    @property
    def exact(self) -> bool:
        """Nothing that was acknowledged is lost with a shard whose chain is whole."""
        return self.waits and self.period == 1

    def with_replicas(self, replicas: int, period: int) -> Strategy:
        """``replicas`` 0: as many as the strategy itself has. Raises :class:`ConfigError` for one that goes back as a whole."""
        if replicas < 0 or period < 1:
            raise ConfigError(f"replicas must be at least 0 and their period at least 1, not {replicas} and {period}")
        if replicas and self.rollback:
            raise ConfigError(
                f"recovery {self.name!r} rolls everything back: replicas are of no use",
                "Leave replicas out, or use partial, sync-chain or async-chain",
            )
        return replace(self, replicas=replicas or self.replicas, period=period)


STRATEGIES: Mapping[str, Strategy] = {
    strategy.name: strategy
    for strategy in (
        Strategy("partial"),
        Strategy("full", rollback=True),
        Strategy("sync-checkpoint", rollback=True, stalls=True),
        Strategy("async-checkpoint", rollback=True),
        Strategy("sync-chain", replicas=1, waits=True),
        Strategy("async-chain", replicas=1),
    )
}


def find_strategy(name: str) -> Strategy:
    """Raises :class:`ConfigError` with the names that there are."""
    if name not in STRATEGIES:
        raise ConfigError(f"recovery {name!r} is unknown", f"Use one of {', '.join(STRATEGIES)}")
    return STRATEGIES[name]
