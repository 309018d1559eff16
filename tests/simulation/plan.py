"""What happens in a run, as data drawn from a seed: the job, the cluster, and groups of faults.

A run is 60 simulated seconds, one in five is 400: faults strike in groups, after each of which the cluster
has to heal, come to rest, and be judged. Each seed turns on a random part of the kinds of faults (swarm
testing): a run that does everything does little of each.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from scar.strategies import STRATEGIES
from scar.worker_strategies import WORKER_STRATEGIES
from scar_chaos.core.counting_job import strategy_options
from tests.simulation.heartbeats import DEFAULT, heartbeat_of, is_cheap, is_cheapest

SHORT, LONG = 60.0, 400.0  # simulated seconds of a run, at least
EARLY = -1.0  # in the place of the seconds after which a fault begins: before the job is started
LONG_EVERY = 5  # seeds, of which one is long
FAULTS = (4, 14)  # of a group
WINDOW = 20.0  # seconds within which the faults of a group begin
DISK_SHARE = 0.2  # of the runs have a directory as their store
KIND_SHARE = 0.4  # of the kinds are turned on by a seed
AUTO_EVERY = 7  # seeds, of which one has a budget in place of a period
MISSING_FROM = (
    20_000  # first seed of which replicas may have only what workers lack: older ones stay as they are
)
HEALED_FROM = 100_000  # first seed of which workers are sources under SSP and ASP, too
SLOTS_FROM = 200_000  # first seed of which they may pull slots, too
HOT_FROM = 300_000  # first seed in which hot blocks change places
TRAFFIC = 5.0  # seconds between looks at the traffic of shards
BUDGET = 200.0  # bytes a second: less than a round at each clock would write
LOOK, CHEAP_LOOK, CHEAPEST_LOOK = 0.5, 1.0, 2.0  # seconds between two looks of the operator


@dataclass(frozen=True)
class SeedRange:
    """What its seeds draw from. ``paces``: seconds of computing in a clock, ``long_paces`` of a long run;
    ``groups``: how many of faults a long run has; ``look``: see :class:`RunShape`.
    """

    paces: Sequence[float] = (0.5, 1.0, 2.0, 4.0)
    long_paces: Sequence[float] = (0.5, 1.0, 2.0, 4.0)
    shards: Sequence[int] = (2, 3, 4)
    workers: Sequence[int] = (1, 2, 3)
    groups: Sequence[int] = (3, 4)
    look: float = LOOK


FIRST_SEEDS = SeedRange()
CHEAP_SEEDS = SeedRange(paces=(1.0, 2.0, 4.0), long_paces=(4.0, 8.0), look=CHEAP_LOOK)
CHEAPEST_SEEDS = SeedRange(
    paces=(2.0, 4.0),
    long_paces=(8.0,),
    shards=(2, 2, 3, 4),
    workers=(1, 1, 2, 3),
    groups=(2,),
    look=CHEAPEST_LOOK,
)


@dataclass(frozen=True)
class RunShape:
    """The job and its cluster. ``standby``: each coordinator twice; ``pace``: seconds of computing in a
    clock; ``seconds``: of the run, at least; ``disk``: the store is a directory; ``heartbeat``: see
    :mod:`tests.simulation.heartbeats`; ``auto``: the coordinator chooses its rounds; ``look``: seconds
    between two looks of the operator; ``shard_lease``: seconds of the shards' leases, 0: as recovery has it;
    ``traffic``: seconds between looks at the traffic of shards, 0: nobody looks.
    """

    shards: int = 2
    workers: int = 1
    standby: bool = False
    consistency: str = "bsp"
    staleness: int = 0
    recovery: str = "partial"
    replicas: int = 0
    worker_recovery: str = "ignr"
    share: str = "takeover"
    sources: str = "checkpoint"
    replicate: str = "all"
    pull_slots: int = 0
    pace: float = 0.5
    seconds: float = SHORT
    disk: bool = False
    heartbeat: float = DEFAULT
    auto: bool = False
    look: float = LOOK
    shard_lease: float = 0.0
    traffic: float = 0.0

    def job_options(self, seed: int) -> dict[str, Any]:
        """Of :func:`scar_chaos.core.counting_job.make_job`."""
        names = ("shards", "workers", "consistency", "staleness", "replicas", "share", "pace")
        names += ("sources", "replicate", "pull_slots")
        options = {name: getattr(self, name) for name in names}
        options |= {"worker_recovery": self.worker_recovery, "seed": seed, **strategy_options(self.recovery)}
        if WORKER_STRATEGIES[self.worker_recovery].rollback:
            options["checkpoint"] = {"selection": "full", "fraction": 1.0, "period": 8}
        if self.auto:
            selection = options.get("checkpoint", {}).get("selection", "priority")
            options["checkpoint"] = {"selection": selection, "stall_share": 0.05, "bytes_per_second": BUDGET}
        return options

    @property
    def coordinators(self) -> list[str]:
        kinds = ("recovery", "checkpoint", "detector")
        return [f"{kind}-{number}" for kind in kinds for number in range(1 + self.standby)]

    @property
    def shard_names(self) -> list[str]:
        return [f"ps-{number}" for number in range(self.shards)]

    @property
    def worker_names(self) -> list[str]:
        return [f"worker-{number}" for number in range(self.workers)]

    @property
    def members(self) -> list[str]:
        """Every process of the cluster but Redis."""
        return [*self.shard_names, *self.worker_names, *self.coordinators]


@dataclass(frozen=True)
class SimulatedFault:
    """One thing that goes wrong. ``at``: seconds after its group began, :data:`EARLY`: before the job starts;
    ``seconds``: how long it lasts, 0:
    it happens at once; ``amount``: what its kind says.
    """

    kind: str
    target: str
    at: float
    seconds: float = 0.0
    amount: float = 0.0

    @property
    def end(self) -> float:
        return self.at + self.seconds

    def __str__(self) -> str:
        lasts = f" for {self.seconds:.3g} s" if self.seconds else ""
        amount = f" ({self.amount:.3g})" if self.amount else ""
        return f"{self.at:5.1f} s  {self.kind} {self.target}{lasts}{amount}"


FaultGroup = tuple[SimulatedFault, ...]


@dataclass(frozen=True)
class Plan:
    """``groups``: faults that strike together."""

    seed: int
    shape: RunShape
    groups: tuple[FaultGroup, ...]

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Raises ValueError, TypeError or KeyError for what is none."""
        data = json.loads(text)
        groups = tuple(tuple(SimulatedFault(**fault) for fault in group) for group in data["groups"])
        return cls(data["seed"], RunShape(**data["shape"]), groups)

    @property
    def faults(self) -> list[SimulatedFault]:
        return [fault for group in self.groups for fault in group]


DrawFault = Callable[[random.Random, RunShape], tuple[str, float, float]]  # target, seconds, amount


@dataclass(frozen=True)
class Focus:
    """A part of all runs. ``shape``: fields that are not drawn; ``kinds``: of faults, all of which are turned
    on, ``roles``: of their targets; none: all. ``faults``: least and most of a group. ``draws``: of kinds
    whose targets, durations and amounts are drawn in another way than anywhere else; ``early``: the same for
    kinds of which one fault each strikes before the job is started.
    """

    shape: Mapping[str, Any] = field(default_factory=dict)
    kinds: Sequence[str] = ()
    roles: Sequence[str] = ()
    faults: tuple[int, int] = FAULTS
    draws: Mapping[str, DrawFault] = field(default_factory=dict)
    early: Mapping[str, DrawFault] = field(default_factory=dict)

    def aims_at(self, target: str) -> bool:
        """Whether faults of this target are played."""
        return not self.roles or target.partition("-")[0] in self.roles


ANYWHERE = Focus()


def draw_shape(draw: random.Random, seed: int, focus: Focus = ANYWHERE) -> RunShape:
    """The order of the draws is part of what a seed means."""
    drawn = _range_of(seed, focus)
    recovery = draw.choice(["partial", *STRATEGIES])  # partial twice as often
    consistency = draw.choice(["bsp", "ssp", "asp"])
    shape = RunShape(
        shards=draw.choice(drawn.shards),
        workers=draw.choice(drawn.workers),
        standby=draw.random() < 0.5,
        consistency=consistency,
        staleness=draw.choice([1, 2]) if consistency == "ssp" else 0,
        recovery=recovery,
        replicas=draw.choice([0, 0, 1]),
        worker_recovery=draw.choice(["ignr", "ignr", *WORKER_STRATEGIES]),
        share=draw.choice(["takeover", "takeover", "drop"]),
        pace=draw.choice(drawn.paces if seed % LONG_EVERY else drawn.long_paces),
        seconds=SHORT if seed % LONG_EVERY else LONG,
        disk=draw.random() < DISK_SHARE,
        heartbeat=heartbeat_of(seed) if focus is ANYWHERE else DEFAULT,
        sources="workers" if focus is ANYWHERE and seed % 2 else "checkpoint",
        replicate="missing" if focus is ANYWHERE and seed >= MISSING_FROM else "all",
        pull_slots=seed % 3 if focus is ANYWHERE and seed >= SLOTS_FROM else 0,
        auto=focus is ANYWHERE and seed % AUTO_EVERY == 0,
        look=drawn.look,
        traffic=TRAFFIC if focus is ANYWHERE and seed >= HOT_FROM else 0.0,
    )
    return _consistent(replace(shape, **focus.shape), focus is not ANYWHERE or seed >= HEALED_FROM)


def _range_of(seed: int, focus: Focus) -> SeedRange:
    """Parts of all runs are drawn as the first seeds are."""
    if focus is not ANYWHERE or not is_cheap(seed):
        return FIRST_SEEDS
    return CHEAPEST_SEEDS if is_cheapest(seed) else CHEAP_SEEDS


def _consistent(shape: RunShape, all_heal: bool) -> RunShape:
    """The nearest shape of which a job can be made. ``all_heal``: whatever its consistency."""
    strategy = STRATEGIES[shape.recovery]
    if strategy.stores:  # its rounds save what has changed, and nobody waits for a clock
        shape = replace(shape, consistency="asp", staleness=0)
        shape = replace(shape, auto=False)
        if WORKER_STRATEGIES[shape.worker_recovery].rollback:
            shape = replace(shape, worker_recovery="ignr")
    if strategy.rollback or strategy.stores:
        shape = replace(shape, replicas=0)
    rewinds = WORKER_STRATEGIES[shape.worker_recovery].rollback
    heals = all_heal or shape.consistency == "bsp"
    if shape.replicate == "missing" and (shape.sources != "workers" or shape.replicas != 1):
        shape = replace(shape, replicate="all")
    replicas = shape.replicas if shape.replicate == "all" else 0
    if shape.recovery != "partial" or replicas or rewinds or not heals:
        shape = replace(shape, sources="checkpoint", replicate="all")
    if (shape.sources, shape.replicate, shape.consistency) != ("workers", "all", "bsp"):
        shape = replace(shape, pull_slots=0)
    if WORKER_STRATEGIES[shape.worker_recovery].waits:
        shape = replace(shape, share="takeover")
    return shape


def draw_plan(seed: int, kinds: Mapping[str, DrawFault], focus: Focus = ANYWHERE) -> Plan:
    """``kinds``: how target, duration and amount of each kind of fault are drawn."""
    draw = random.Random(f"plan {seed}")
    shape = draw_shape(draw, seed, focus)
    known = sorted(kinds)
    chosen = [kind for kind in known if draw.random() < KIND_SHARE] or [draw.choice(known)]
    count = 1 if shape.seconds < LONG else draw.choice(_range_of(seed, focus).groups)
    drawn = {kind: focus.draws.get(kind, kinds[kind]) for kind in focus.kinds or chosen}
    groups = [_draw_group(draw, shape, drawn, focus) for _ in range(count)]
    early = [_early_fault(kind, how(draw, shape)) for kind, how in focus.early.items()]
    groups[0] = (*early, *groups[0])
    return Plan(seed, shape, tuple(groups))


def _early_fault(kind: str, drawn: tuple[str, float, float]) -> SimulatedFault:
    target, seconds, amount = drawn
    return SimulatedFault(kind, target, EARLY, seconds, amount)


def _draw_group(
    draw: random.Random, shape: RunShape, kinds: Mapping[str, DrawFault], focus: Focus
) -> FaultGroup:
    names = sorted(kinds)
    faults = []
    for _ in range(draw.randint(*focus.faults)):
        kind = draw.choice(names)
        target, seconds, amount = kinds[kind](draw, shape)
        if target and focus.aims_at(target):
            at = round(draw.uniform(0.0, WINDOW), 3)
            faults.append(SimulatedFault(kind, target, at, round(seconds, 3), amount))
    return tuple(sorted(faults, key=lambda fault: fault.at))
