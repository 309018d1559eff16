"""What happens in a run, drawn from a seed: the same seed on the same kind of target is the same run. Pure.

A run is a job (shards, workers, consistency) and groups of faults that happen together: one fault, several shards at once, two
things at a time, or one thing while another is being repaired.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from scar.errors import ConfigError
from scar_chaos.faults import Fault

COORDINATORS = ("checkpoint", "recovery", "detector")
CONSISTENCY: tuple[dict[str, Any], ...] = (
    {"consistency": "bsp"},
    {"consistency": "ssp", "staleness": 1},
    {"consistency": "asp"},
)
FRACTIONS = (0.34, 0.5, 1.0)  # of the shards that die at once
CLOCKS = (2, 5, 9)  # between two groups
LAGS = (0.0, 0.05, 0.3, 1.0)  # seconds between two faults of one group

Kinds = Mapping[str, Sequence[str]]  # "ps", "worker", a coordinator, "redis" or "store" -> kinds of faults


@dataclass(frozen=True)
class Schedule:
    """``options``: of :func:`scar_chaos.counting.make_job`. ``faults``: see :func:`scar_chaos.faults.groups`."""

    seed: int
    options: dict[str, Any]
    faults: tuple[Fault, ...]

    def __str__(self) -> str:
        job = ", ".join(f"{key} {value}" for key, value in self.options.items())
        return f"seed {self.seed}: {job}: {'; '.join(map(str, self.faults))}"


@dataclass(frozen=True)
class Room:
    """What may be drawn. ``kinds``: what the target can do to whom; ``shards``, ``workers``: how many there may be; ``fixed``:
    options of the job that are not drawn."""

    kinds: Kinds
    shards: Sequence[int] = (2, 3)
    workers: Sequence[int] = (1, 2)
    groups: int = 3
    fixed: Mapping[str, Any] = field(default_factory=dict)


class _Draw:
    def __init__(self, seed: int, room: Room) -> None:
        self._random, self._kinds = random.Random(seed), room.kinds
        self.shards = [f"ps-{number}" for number in range(self.one(room.shards))]
        self.workers = [f"worker-{number}" for number in range(self.one(room.workers))]
        self.consistency = self.one(CONSISTENCY)

    def one(self, choices: Sequence[Any]) -> Any:
        return self._random.choice(choices)

    def some(self, count: int, names: Sequence[str]) -> list[str]:
        return sorted(self._random.sample(names, count))

    def anyone(self) -> str:
        """Shards twice as often as the others."""
        return str(self.one((*self.shards, *self.shards, *self.workers, *COORDINATORS, "redis", "store")))

    def kinds(self, target: str) -> Sequence[str]:
        return self._kinds[target.split("-")[0]]

    def death(self, target: str) -> str:
        """How it is taken away at once."""
        return next(kind for kind in ("kill", "delete", "outage") if kind in self.kinds(target))

    def slow_store(self, clock: int) -> Fault | None:
        """A store that stands still for a while, or cannot be reached; None: it can only be taken away."""
        kind = next((kind for kind in ("freeze", "cut") if kind in self.kinds("store")), "")
        return Fault(clock, kind, "store") if kind else None

    def fault(self, target: str, clock: int, lag: float = 0.0) -> Fault:
        return Fault(clock, self.one(self.kinds(target)), target, lag)


def _single(draw: _Draw, clock: int) -> list[Fault]:
    return [draw.fault(draw.anyone(), clock)]


def _shards_at_once(draw: _Draw, clock: int) -> list[Fault]:
    """A fraction of the parameters is lost in one moment."""
    names = draw.some(math.ceil(draw.one(FRACTIONS) * len(draw.shards)), draw.shards)
    return [Fault(0 if number else clock, "kill", name) for number, name in enumerate(names)]


def _double(draw: _Draw, clock: int) -> list[Fault]:
    return [draw.fault(draw.anyone(), clock), draw.fault(draw.anyone(), 0, draw.one(LAGS))]


def _during_round(draw: _Draw, clock: int) -> list[Fault]:
    """Somebody dies while a round is written. A store that stands still, where it can, keeps the round open."""
    target = draw.one(("checkpoint", "checkpoint", "recovery", draw.one(draw.shards)))
    death = Fault(clock, "kill", target, moment="round")
    slow = draw.slow_store(clock)
    return [slow, replace(death, clock=0, lag=LAGS[-1])] if slow else [death]


def _during_recovery(draw: _Draw, clock: int) -> list[Fault]:
    """Somebody who is needed dies while lost blocks are on their way back. A store that stands still keeps them there."""
    target = draw.one((*COORDINATORS, "recovery", "redis", "store", draw.one(draw.workers), draw.shards[-1]))
    first = Fault(clock, "kill", "ps-0")
    second = Fault(0, draw.death(target), target, moment="recovery")
    slow = draw.slow_store(clock) if target != "store" else None
    if slow is None:
        return [first, second]
    return [slow, replace(first, clock=0, lag=LAGS[-1]), replace(second, lag=LAGS[-1])]


GROUPS: tuple[Callable[[_Draw, int], list[Fault]], ...] = (
    _single, _single, _shards_at_once, _double, _during_round, _during_recovery,
)  # fmt: skip


def drawn(seed: int, room: Room, faults: Sequence[Fault] = (), **fixed: Any) -> Schedule:
    """``faults``: instead of drawn ones. ``fixed``: options of the job that are not drawn."""
    draw = _Draw(seed, room)
    options = {
        "shards": len(draw.shards),
        "workers": len(draw.workers),
        "seed": seed,
        **draw.consistency,
        **room.fixed,
        **fixed,
    }
    made = faults or [fault for _ in range(room.groups) for fault in draw.one(GROUPS)(draw, draw.one(CLOCKS))]
    return Schedule(seed, options, tuple(made))


def spelled(text: str, kinds: Kinds, clock: int = CLOCKS[1]) -> list[Fault]:
    """A group as people write it: ``kill:ps-0+ps-1``. Raises :class:`ConfigError` that says what could be written."""
    kind, _, targets = text.partition(":")
    for target in targets.split("+"):
        known = kinds.get(target.split("-")[0])
        if known is None:
            raise ConfigError(f"{text!r} names no target: {target!r}", f"Write KIND:TARGET[+TARGET...], of {_names(kinds)}")
        if kind not in known:
            raise ConfigError(f"{kind!r} cannot be done to {target} here", f"Choose one of {', '.join(sorted(set(known)))}")
    return [Fault(0 if number else clock, kind, target) for number, target in enumerate(targets.split("+"))]


def _names(kinds: Kinds) -> str:
    return ", ".join(f"{name}-0" if name in ("ps", "worker") else name for name in kinds)
