"""How a job survives the loss of a parameter server, as facts that the services ask for: none of them knows a
strategy's name.

`docs/strategies.md` says what each costs and promises; seed 003 is the source of all but the first two.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from scar.errors import ConfigError, use_one_of
from scar.worker_strategies import WORKER_STRATEGIES


@dataclass(frozen=True)
class Strategy:
    """One choice of :attr:`scar.Job.recovery`.

    ``rollback``: a loss takes every block back to the last consistent checkpoint, else only what was lost
    comes back. ``stalls``: a checkpoint is on the critical path: nothing is applied until it is durable.
    ``replicas``: shards beside its owner that keep a copy of a block; ``period``: updates between two copies
    (BSP: clocks, else pushes to the shard); ``waits``: an acknowledgement waits until the next replica has
    what it must have. ``stores``: an acknowledgement waits until the store has it. ``queues``: workers go on
    while a shard is away, with what they pulled last; what they push meanwhile waits, and goes as one.
    ``asks_workers``: what a living worker pulled last is a source of lost blocks. ``missing``: replicas keep
    only what workers could not give back; in BSP what is acknowledged may be one clock ahead of them.
    """

    name: str
    rollback: bool = False
    stalls: bool = False
    replicas: int = 0
    period: int = 1
    waits: bool = False
    stores: bool = False
    queues: bool = False
    asks_workers: bool = False
    missing: bool = False

    @property
    def lag(self) -> int:
        """Updates by which the next replica may be behind what is acknowledged."""
        return int(self.missing)

    @property
    def kept_clocks(self) -> int:
        """Closed clocks (BSP) of which workers keep what they pushed: what comes back may be so old."""
        return int(self.asks_workers) + self.lag

    @property
    def exact(self) -> bool:
        """Nothing that was acknowledged is lost with a shard whose chain is whole."""
        return self.stores or (self.waits and self.period == 1)

    def ensure_valid(self, shards: int, eager: bool) -> None:
        """``eager``: nobody waits for a clock, and rounds save all that changes. Raises
        :class:`ConfigError`.
        """
        if self.stores and not eager:
            raise ConfigError(
                f"recovery {self.name} needs consistency asp, and rounds that save all that has changed",
                "Set consistency='asp', checkpoint=scar.Checkpoint(fraction=1.0)",
            )
        if self.replicas >= shards:
            raise ConfigError(
                f"{self.replicas} replicas need more than {shards} shards",
                "A replica lives on another shard than its owner: start more shards, or ask for fewer"
                " replicas",
            )

    def with_replicas(self, replicas: int, period: int) -> Strategy:
        """``replicas`` 0: as many as the strategy itself has. Raises :class:`ConfigError` for one that
        goes back as a whole.
        """
        if replicas < 0 or period < 1:
            raise ConfigError(
                f"replicas must be at least 0 and their period at least 1, not {replicas} and {period}"
            )
        if replicas and (self.rollback or self.stores):
            raise ConfigError(
                f"recovery {self.name!r} takes nothing from other shards: replicas are of no use",
                "Leave replicas out, or use partial, sync-chain or async-chain",
            )
        return replace(self, replicas=replicas or self.replicas, period=period)

    def with_sources(self, sources: str, replicate: str, rewinds: bool) -> Strategy:
        """Names of :data:`SOURCES` and :data:`REPLICATED`, and whether (``rewinds``) a worker's
        death takes everything back. Raises :class:`ConfigError` for what does not fit.
        """
        if sources not in SOURCES:
            raise ConfigError(f"sources {sources!r} is unknown", use_one_of(sources, SOURCES))
        if replicate not in REPLICATED:
            raise ConfigError(f"replicate {replicate!r} is unknown", use_one_of(replicate, REPLICATED))
        missing = replicate == "missing"
        if missing and (sources != "workers" or (self.replicas, self.period) != (1, 1)):
            raise ConfigError(
                "replicate 'missing' is for one replica of what workers could not give back",
                "Set sources='workers', replicas=1, replica_period=1, or leave replicate out",
            )
        if sources == "checkpoint":
            return self
        if self.name != "partial" or (self.replicas and not missing) or rewinds:
            raise ConfigError(
                "sources 'workers' is for recovery partial, without replicas or with replicate 'missing',"
                " where a worker's death takes nothing back",
                "Leave sources out, or set recovery='partial', worker_recovery='ignr', and replicas=0 or"
                " replicas=1, replicate='missing'",
            )
        return replace(self, asks_workers=True, missing=missing, waits=missing)


@dataclass(frozen=True)
class StrategyChoice:
    """What was chosen for a job that leaves it to the recovery coordinator (:data:`AUTO`), and why."""

    recovery: str = "partial"
    replicas: int = 0
    sources: str = "checkpoint"
    reason: str = ""


# of which one is chosen; the first of those that add about the same
CHOICES: Mapping[str, StrategyChoice] = {
    "partial from workers": StrategyChoice("partial", sources="workers"),
    "partial": StrategyChoice("partial"),
    "partial with a replica": StrategyChoice("partial", replicas=1),
    "sync-chain": StrategyChoice("sync-chain"),
    "stateless": StrategyChoice("stateless"),
    "full": StrategyChoice("full"),
}
AUTO = "auto"  # in place of a name: the recovery coordinator chooses when the job starts

# pushes that wait; the sum of more is one step at a smaller learning rate (seed 003, section 2.3, and its
# code)
BACKLOG = 50
BACKLOG_RATE = 0.1  # of the table's own

ROLLBACK = "rollback"  # in the ledger: a worker has asked for it, whatever the job's strategies

SOURCES = ("checkpoint", "workers")  # of lost blocks, beside replicas: workers first, what they lack is saved
REPLICATED = ("all", "missing")  # what replicas keep: every block, or what workers could not give back
# SSP, ASP: a worker keeps what it pushed until it has pulled it, or for so many clocks of its own
PUSHES_KEPT = 8
HOLDERS_COUNTED = 2  # clocks for which a shard counts on a pull of the whole table, less than that
# "missing": a shard counts on a pull in the clock in which it was made and the next; workers keep those of
# some blocks for two clocks more, which is as long as a copy takes to its replica at most
PULLS_COUNTED = 2
PULLS_HELD = PULLS_COUNTED + 2

STRATEGIES: Mapping[str, Strategy] = {
    strategy.name: strategy
    for strategy in (
        Strategy("partial"),
        Strategy("full", rollback=True),
        Strategy("sync-checkpoint", rollback=True, stalls=True),
        Strategy("async-checkpoint", rollback=True),
        Strategy("sync-chain", replicas=1, waits=True),
        Strategy("async-chain", replicas=1),
        Strategy("stateless", stores=True, queues=True),
    )
}

# further names under which strategies are compared and broken, with what a job says for each
VARIANTS: Mapping[str, Mapping[str, str | int]] = {
    "partial-workers": {"recovery": "partial", "sources": "workers"},
    "partial-slots": {"recovery": "partial", "sources": "workers", "pull_slots": 1},
    "partial-missing": {
        "recovery": "partial",
        "sources": "workers",
        "replicas": 1,
        "replicate": "missing",
    },
}


def variant_options(name: str) -> dict[str, str | int]:
    """What :class:`scar.Job` is told for a name of :data:`STRATEGIES` or :data:`VARIANTS`. Raises
    :class:`ConfigError` with the names that there are.
    """
    names = (*STRATEGIES, *VARIANTS)
    if name not in names:
        raise ConfigError(f"strategy {name!r} is unknown", use_one_of(name, names))
    return dict(VARIANTS.get(name, {"recovery": name}))


def find_strategy(name: str) -> Strategy:
    """Raises :class:`ConfigError` with the names that there are."""
    if name not in STRATEGIES:
        raise ConfigError(f"recovery {name!r} is unknown", use_one_of(name, (*STRATEGIES, AUTO)))
    return STRATEGIES[name]


def check_choice(
    recovery: str, choice: StrategyChoice | None, replicas: int, sources: str, mtbf: float
) -> None:
    """Whoever leaves the choice to the coordinator names no part of it, and nobody else has one. ``mtbf``:
    seconds. Raises :class:`ConfigError`.
    """
    if not 0 <= mtbf < math.inf:
        raise ConfigError(f"server_mtbf {mtbf} is no number of seconds", "Set 0 where it is not known")
    if recovery == AUTO and (replicas or sources != SOURCES[0]):
        raise ConfigError(
            "recovery 'auto' chooses replicas and sources, too", "Leave them out, or name a recovery"
        )
    if recovery != AUTO and choice is not None:
        raise ConfigError(f"recovery {recovery!r} is named, and yet something was chosen")


def check_pull_slots(workers: int, strategy: Strategy, consistency: str) -> None:
    """``workers`` that pull slots along. Raises :class:`ConfigError` where they could not give them back."""
    if workers < 0:
        raise ConfigError(f"pull_slots is a number of workers, not {workers}")
    if workers and (not strategy.asks_workers or strategy.missing or consistency != "bsp"):
        raise ConfigError(
            "pull_slots is for consistency bsp with workers as sources and no replica of what they lack",
            "Set consistency='bsp', recovery='partial', sources='workers', replicas=0, or leave it out",
        )


def check_selection(recovery: str, worker_recovery: str, selection: str) -> None:
    """What rolls back needs full checkpoints. Each strategy by name; empty where it does not roll back.
    Raises :class:`ConfigError`.
    """
    if (recovery or worker_recovery) and selection != "full":
        name = f"recovery {recovery}" if recovery else f"worker_recovery {worker_recovery}"
        raise ConfigError(
            f"{name} needs full checkpoints", "Set checkpoint=scar.Checkpoint(selection='full', period=n)"
        )


def rolls_back(name: str) -> bool:
    """Whether the strategy that a ledger record names, of shards or of workers, takes every block back."""
    if name == ROLLBACK:
        return True
    known = STRATEGIES.get(name) or WORKER_STRATEGIES.get(name)
    return known is not None and known.rollback
