"""What happens in a run, drawn from a seed: the same seed on the same kind of target is the same run.

A run is a job (shards, workers, consistency) and groups of faults that happen together: one fault, several
shards at once, two things at a time, or one thing while another is being repaired. Each seed turns on a
random part of the kinds of faults (swarm testing): a run that does everything does little of each.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from scar_chaos.core.faults import Fault

COORDINATORS = ("checkpoint", "recovery", "detector")
CONSISTENCY: tuple[dict[str, Any], ...] = (
    {"consistency": "bsp"},
    {"consistency": "ssp", "staleness": 1},
    {"consistency": "asp"},
)
FRACTIONS = (0.34, 0.5, 1.0)  # of the shards that die at once
CLOCKS = (2, 5, 9)  # between two groups
LAGS = (0.0, 0.05, 0.3, 1.0)  # seconds between two faults of one group
SWARM = 0.7  # chance of each kind of fault to be turned on
MINUTES = (40.0, 75.0, 120.0)  # seconds of a long outage
DAMAGE = ("corrupt", "truncate", "garble")  # of what the store holds

# "ps", "worker", a coordinator, "redis", "store" or "job" -> kinds of faults
FaultKinds = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class RunProfile:
    """A kind of runs.

    ``pace``: seconds of computing in a clock; 0: the workload's own, of some hundredths. ``outages``: every
    group is an outage of minutes.
    """

    pace: float = 0.0
    outages: bool = False


PROFILES = {
    "default": RunProfile(),
    "slow": RunProfile(pace=1.2),
    "outage": RunProfile(outages=True),
}


@dataclass(frozen=True)
class Schedule:
    """One run: a job, and what breaks.

    ``options``: of :func:`scar_chaos.core.counting_job.make_job`. ``faults``: in their order; see
    :func:`scar_chaos.core.faults.fault_groups`. ``standby``: on this machine a second recovery and checkpoint
    coordinator run.
    """

    seed: int
    options: dict[str, Any]
    faults: tuple[Fault, ...]
    standby: bool = False

    def __str__(self) -> str:
        job = ", ".join(f"{key} {value}" for key, value in self.options.items())
        standby = ", standby coordinators" if self.standby else ""
        return f"seed {self.seed}: {job}{standby}: {'; '.join(map(str, self.faults))}"


@dataclass(frozen=True)
class FaultSpace:
    """What may be drawn.

    ``kinds``: what can be done to whom; ``played``: the same with what is done only where somebody names it,
    empty: nothing more; ``shards``, ``workers``: how many there may be; ``groups``: how often
    something breaks; ``fixed``: options of the job that are not drawn.
    """

    kinds: FaultKinds
    shards: Sequence[int] = (2, 3)
    workers: Sequence[int] = (1, 2)
    groups: int = 3
    fixed: Mapping[str, Any] = field(default_factory=dict)
    profile: RunProfile = PROFILES["default"]
    played: FaultKinds = field(default_factory=dict)


class _Draw:
    """The random choices of one seed. Their order is part of what a seed means."""

    def __init__(self, seed: int, space: FaultSpace) -> None:
        self._random = random.Random(seed)
        self._space = space
        self.shards = [f"ps-{number}" for number in range(self.choose_one(space.shards))]
        self.workers = [f"worker-{number}" for number in range(self.choose_one(space.workers))]
        self.consistency = self.choose_one(CONSISTENCY)
        self._kinds = {target: self._turn_on(kinds) for target, kinds in space.kinds.items()}
        self.standby = self.choose_one((False, True))

    def choose_one(self, choices: Sequence[Any]) -> Any:
        return self._random.choice(choices)

    def choose_some(self, count: int, names: Sequence[str]) -> list[str]:
        return sorted(self._random.sample(names, count))

    def _turn_on(self, kinds: Sequence[str]) -> list[str]:
        """The kinds of faults that this seed turns on; at least one."""
        known = sorted(set(kinds))
        chosen = {kind for kind in known if self._random.random() < SWARM} or {self.choose_one(known)}
        return [kind for kind in kinds if kind in chosen]

    def any_target(self) -> str:
        """Shards twice as often as the others."""
        others = [name for name in ("redis", "store", "job") if name in self._kinds]
        return str(self.choose_one((*self.shards, *self.shards, *self.workers, *COORDINATORS, *others)))

    def kinds_of(self, target: str) -> Sequence[str]:
        return self._kinds[target.split("-")[0]]

    def sudden_death(self, target: str) -> str:
        """The kind of fault that takes it away at once."""
        possible = self._space.kinds[target.split("-")[0]]
        return next(kind for kind in ("kill", "delete", "outage") if kind in possible)

    def stall_store(self, clock: int) -> Fault | None:
        """A store that stands still for a while, or cannot be reached; None: it can only be taken away."""
        kind = next((kind for kind in ("freeze", "cut") if kind in self._space.kinds["store"]), "")
        return Fault(clock, kind, "store") if kind else None

    def draw_fault(self, target: str, clock: int, lag: float = 0.0) -> Fault:
        return Fault(clock, self.choose_one(self.kinds_of(target)), target, lag)


def _one_fault(draw: _Draw, clock: int) -> list[Fault]:
    return [draw.draw_fault(draw.any_target(), clock)]


def _shards_at_once(draw: _Draw, clock: int) -> list[Fault]:
    """A fraction of the parameters is lost in one moment."""
    count = math.ceil(draw.choose_one(FRACTIONS) * len(draw.shards))
    names = draw.choose_some(count, draw.shards)
    return [Fault(0 if number else clock, "kill", name) for number, name in enumerate(names)]


def _two_faults(draw: _Draw, clock: int) -> list[Fault]:
    return [
        draw.draw_fault(draw.any_target(), clock),
        draw.draw_fault(draw.any_target(), 0, draw.choose_one(LAGS)),
    ]


def _during_round(draw: _Draw, clock: int) -> list[Fault]:
    """Somebody dies while a round is written. A store that stands still, where it can, keeps it open."""
    target = draw.choose_one(("checkpoint", "checkpoint", "recovery", draw.choose_one(draw.shards)))
    death = Fault(clock, "kill", target, moment="round")
    stall = draw.stall_store(clock)
    return [stall, replace(death, clock=0, lag=LAGS[-1])] if stall else [death]


def _during_recovery(draw: _Draw, clock: int) -> list[Fault]:
    """Somebody who is needed dies while lost blocks are on their way back.

    A store that stands still keeps them there.
    """
    worker = draw.choose_one(draw.workers)
    target = draw.choose_one((*COORDINATORS, "recovery", "redis", "store", worker, draw.shards[-1]))
    first = Fault(clock, "kill", "ps-0")
    second = Fault(0, draw.sudden_death(target), target, moment="recovery")
    stall = draw.stall_store(clock) if target != "store" else None
    if stall is None:
        return [first, second]
    return [stall, replace(first, clock=0, lag=LAGS[-1]), replace(second, lag=LAGS[-1])]


def _with_damaged_store(draw: _Draw, clock: int) -> list[Fault]:
    """A shard dies when what would bring its blocks back is damaged.

    Where nothing can be damaged: any fault.
    """
    possible = [kind for kind in draw.kinds_of("store") if kind in DAMAGE]
    if not possible:
        return _one_fault(draw, clock)
    return [
        Fault(clock, draw.choose_one(possible), "store"),
        Fault(0, "kill", draw.choose_one(draw.shards), draw.choose_one(LAGS)),
    ]


def _under_two_leaders(draw: _Draw, clock: int) -> list[Fault]:
    """A shard dies while a leader is paused, which wakes when its standby has repaired it."""
    leader = draw.choose_one(("recovery", "recovery", "checkpoint"))
    if not draw.standby or "depose" not in draw.kinds_of(leader):
        return _one_fault(draw, clock)
    return [
        Fault(clock, "kill", draw.choose_one(draw.shards)),
        Fault(0, "depose", leader, draw.choose_one(LAGS)),
    ]


GROUPS: tuple[Callable[[_Draw, int], list[Fault]], ...] = (
    _one_fault,
    _one_fault,
    _shards_at_once,
    _two_faults,
    _during_round,
    _during_recovery,
    _with_damaged_store,
    _under_two_leaders,
)


def _long_outage(draw: _Draw, clock: int) -> list[Fault]:
    """The store or Redis is away for a minute or more; in every other case somebody dies meanwhile."""
    target = draw.choose_one(("store", "store", "redis"))
    away = Fault(clock, "outage", target, lasts=draw.choose_one(MINUTES))
    death = Fault(0, "kill", draw.choose_one((*draw.shards, *draw.workers)), 3.0)
    return [away, death][: draw.choose_one((1, 2))]


def draw_schedule(seed: int, space: FaultSpace, faults: Sequence[Fault] = (), **fixed: Any) -> Schedule:
    """Draw what happens in a run.

    ``faults``: instead of drawn ones. ``fixed``: options of the job that are not drawn.
    """
    draw = _Draw(seed, space)
    options: dict[str, Any] = {"shards": len(draw.shards), "workers": len(draw.workers), "seed": seed}
    if space.profile.pace:
        options["pace"] = space.profile.pace
    options |= {**draw.consistency, **space.fixed, **fixed}
    made = list(faults) or _draw_groups(draw, space)
    standby = draw.standby or any(fault.kind == "depose" for fault in made)
    return Schedule(seed, options, tuple(made), standby)


def _draw_groups(draw: _Draw, space: FaultSpace) -> list[Fault]:
    ways = (_long_outage,) if space.profile.outages else GROUPS
    faults: list[Fault] = []
    for _ in range(space.groups):
        way = draw.choose_one(ways)
        faults += way(draw, draw.choose_one(CLOCKS))
    return faults
