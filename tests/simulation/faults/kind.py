"""What a kind of fault is. Each is data (:class:`tests.simulation.plan.SimulatedFault`) until it begins."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from tests.simulation.cluster import Cluster
from tests.simulation.plan import DrawFault, RunShape, SimulatedFault

Strike = Callable[[Cluster, SimulatedFault], None]
Choice = Callable[[random.Random, RunShape], str]
DrawAmount = Callable[[random.Random], float]


def _nothing(_cluster: Cluster, _fault: SimulatedFault) -> None:
    """It ends by itself."""


@dataclass(frozen=True)
class FaultKind:
    """``rows``: of the fault matrix (docs/faults.md). ``draw``: target (empty: there is none), seconds,
    amount. ``begin`` and ``end`` are called outside of every task: they may not wait. ``focused``: only
    scenarios that name it have it, so that it changes nothing of what seeds of the swarm mean.
    """

    name: str
    rows: tuple[str, ...]
    draw: DrawFault
    begin: Strike
    end: Strike = _nothing
    focused: bool = False


def choose_between(smallest: float, largest: float) -> DrawAmount:
    """Small amounts as often as large ones: uniform in the logarithm."""
    return lambda draw: smallest * (largest / smallest) ** draw.random()


def no_amount(_draw: random.Random) -> float:
    return 0.0


def lasting(choose: Choice, shortest: float, longest: float, amount: DrawAmount = no_amount) -> DrawFault:
    """Draws a target, a duration, and an amount. Short faults are more frequent: a run can have many."""

    def duration(draw: random.Random) -> float:
        return shortest * (longest / shortest) ** (draw.random() ** 2)

    def draw(random_: random.Random, shape: RunShape) -> tuple[str, float, float]:
        target = choose(random_, shape)
        return target, duration(random_), amount(random_)

    return draw


def sudden(choose: Choice, amount: DrawAmount = no_amount) -> DrawFault:
    """Draws a target and an amount."""
    return lambda random_, shape: (choose(random_, shape), 0.0, amount(random_))


def any_member(draw: random.Random, shape: RunShape) -> str:
    """Shards twice as often as others."""
    return draw.choice([*shape.members, *shape.shard_names])


def any_shard(draw: random.Random, shape: RunShape) -> str:
    return draw.choice(shape.shard_names)


def any_worker(draw: random.Random, shape: RunShape) -> str:
    return draw.choice(shape.worker_names)


def any_coordinator(draw: random.Random, shape: RunShape) -> str:
    return draw.choice(shape.coordinators)
