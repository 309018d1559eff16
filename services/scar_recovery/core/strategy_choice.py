"""Which strategy a job with recovery "auto" gets: the one that is expected to add the least time. Pure.

A cost is the share of the training's time that a strategy adds: what it holds up while nothing happens, and
what the death of a server takes, as often as servers die. It is the cost model of the experiment
`which-strategy` in expected values. With ``b`` bytes on each of ``S`` servers, a clock of ``c`` seconds, all
blocks saved once in ``C`` clocks, and copying that holds training up for ``k`` seconds a byte:

    strategy                   adds in a clock     the death of a server takes
    partial                    k b / C             C c / 2 of the 1/S that it held, and b from the store
    partial, sources=workers   k b / C             b from the workers; of tables with slots as partial
    partial, replicas=1        k b (1 + 1/C)       as old as copies are, c or the time for b, of 1/S
    sync-chain                 k b (1 + 1/C), and  nothing
                               the time for b
    stateless                  k b                 b from the store, of 1/S
    full                       k b / C             C c / 2 of everything, and b from the store

That a block costs as much as it is old is an upper bound: partial recovery costs less. Memory, and what
shipments take of a network that is full already, are not counted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from scar.errors import ConfigError
from scar.strategies import AUTO, CHOICES, Strategy, StrategyChoice
from scar.tables import Job, Table

ALIKE = 0.001  # of the time of training
STALL = 6.6e-3 / 12.5e6  # seconds for which copying a byte holds up training (benchmarks: dump)
NETWORK = 125e6  # bytes a second between two servers, where nobody has measured: 1 Gbit/s
CLOCK = 1.0  # seconds, before a clock was seen
PRIOR_SECONDS = 3600.0  # before anything is known, a server is expected to die in so many


@dataclass(frozen=True)
class RunFacts:
    """What is known when a job starts. ``store``, ``network``: bytes a second. ``clock``: seconds; 0: none
    was seen. ``deaths``: of servers, in ``seconds`` of training that were seen.
    """

    store: float
    network: float = NETWORK
    clock: float = 0.0
    deaths: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class _CostModel:
    """Of one job. ``failures``: deaths of servers a second."""

    job: Job
    facts: RunFacts
    failures: float

    @property
    def clock(self) -> float:
        return self.facts.clock or CLOCK

    @property
    def part(self) -> float:
        """Bytes on each server."""
        return model_bytes(self.job) / self.job.shards

    def share_added(self, strategy: Strategy) -> float:
        """Of the training's time."""
        held = self._seconds_held(strategy) / self.clock
        return held + self.failures * self._seconds_lost(strategy)

    def _seconds_held(self, strategy: Strategy) -> float:
        """In each clock."""
        copied = STALL * self.part
        if strategy.stores:
            return copied
        rounds = copied / self.job.checkpoint.period
        waited = self.part / self.facts.network if strategy.waits else 0.0
        return rounds + waited + strategy.replicas * copied

    def _seconds_lost(self, strategy: Strategy) -> float:
        """By the death of one server."""
        share = 1 / self.job.shards
        age = self.job.checkpoint.period * self.clock / 2
        load = self.part / self.facts.store
        ship = self.part / self.facts.network
        if strategy.waits:
            return 0.0
        if strategy.stores:
            return share * load
        if strategy.rollback:
            return age + load
        if strategy.replicas:
            return share * max(self.clock, ship)
        if strategy.asks_workers:
            rest = _slotted_share(self.job)
            return rest * (share * age + load) + (1 - rest) * ship
        return share * age + load


def choose_strategy(job: Job, facts: RunFacts) -> StrategyChoice:
    """For a job with recovery "auto"; the reason names what counted, and what the others would add."""
    failures, seen = _failure_rate(job, facts)
    model = _CostModel(job, facts, failures)
    valid = {name: _find_strategy(job, one) for name, one in CHOICES.items()}
    added = {name: model.share_added(one) for name, one in valid.items() if one is not None}
    least = min(added.values())
    chosen = next(name for name, share in added.items() if share <= least + ALIKE)
    others = ", ".join(f"{name} {share:.2%}" for name, share in added.items() if name != chosen)
    clock = f"{facts.clock:.3g} s" if facts.clock else f"{CLOCK:g} s (assumed)"
    reason = (
        f"{chosen} adds {added[chosen]:.2%} of the time ({others}), for {model.part / 1e6:.3g} MB on each of"
        f" {job.shards} servers, {seen}, clocks of {clock}, a store of {facts.store / 1e6:.3g} MB/s"
        f" (measured) and a network of {facts.network / 1e6:.3g} MB/s (assumed)"
    )
    return replace(CHOICES[chosen], reason=reason)


def _failure_rate(job: Job, facts: RunFacts) -> tuple[float, str]:
    """Deaths of servers a second, and where that is from: the user, or what was seen."""
    if job.server_mtbf:
        return job.shards / job.server_mtbf, f"of which each dies every {job.server_mtbf:,.0f} s (given)"
    lived = facts.seconds * job.shards
    mean = (lived + PRIOR_SECONDS) / (facts.deaths + 1)
    seen = f"deaths in {facts.seconds:,.0f} s: {facts.deaths}" if lived else "assumed"
    return job.shards / mean, f"of which each dies every {mean:,.0f} s ({seen})"


def _find_strategy(job: Job, choice: StrategyChoice) -> Strategy | None:
    """None where the job's consistency, checkpoints or number of servers do not allow it, or workers have
    none of what it would ask them for.
    """
    try:
        strategy = replace(job, recovery=AUTO, choice=choice).strategy
    except ConfigError:
        return None
    return None if strategy.asks_workers and _slotted_share(job) == 1 else strategy


def model_bytes(job: Job) -> float:
    """Values and slots."""
    return float(sum(table.bytes * _copies(table) for table in job.tables))


def _copies(table: Table) -> int:
    """Arrays of the table's size. Slots of one number a row do not count."""
    return 1 + len(table.rule.slots) - len(table.rule.row_slots)


def _slotted_share(job: Job) -> float:
    """Of the bytes, those in tables with slots: workers have none."""
    slotted = sum(table.bytes * _copies(table) for table in job.tables if table.rule.slots)
    return slotted / model_bytes(job)
