"""All that a simulated run depends on: what is trained where, what fails, and how state is saved."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from math import sqrt
from typing import Literal

from experiments.simulate.faults import Faults
from experiments.simulate.network import Step, exchange, store
from experiments.simulate.platform import GB, TABLE_2, Platform, Training, check
from experiments.simulate.rework import Rework, measured
from scar.errors import ConfigError

# One round at r = 1/8 held up 100 MB for 6.6 ms: `python -m benchmarks dump`
STALL_SECONDS_PER_BYTE = 6.6e-3 / 12.5e6
MOST_FAULTS = 100  # of one kind in one computation: what a run may take to simulate is limited


@dataclass(frozen=True)
class Strategy:
    """``workers``: after a worker fails, all go back to the checkpoint, its iteration is done again with the servers'
    parameters, or the servers do without. ``servers``: after a server fails, all go back, or only what it held."""

    name: str
    workers: Literal["rollback", "redo", "ignore"]
    servers: Literal["rollback", "partial"]


CKPT = Strategy("ckpt", "rollback", "rollback")
PS = Strategy("ps", "redo", "rollback")
IGNR = Strategy("ignr", "ignore", "rollback")
SCAR = Strategy("scar", "redo", "partial")
SCAR_IGNR = Strategy("scar-ignr", "ignore", "partial")
PUBLISHED = (CKPT, PS, IGNR)
STRATEGIES = (*PUBLISHED, SCAR, SCAR_IGNR)


@dataclass(frozen=True)
class Checkpoint:
    """CKPT: each worker writes ``bytes`` after every ``interval`` iterations, while all wait."""

    bytes: float = 4 * GB
    interval: int = 4

    def __post_init__(self) -> None:
        check(self, ("bytes",), ("interval",))


@dataclass(frozen=True)
class Rounds:
    """Checkpoints of the servers, in the background: everything in ``period`` iterations, for SCAR in rounds of ``fraction``.

    ``stall``: seconds for which a server's round holds up training, for each byte that it copies.
    """

    period: int = 8
    fraction: float = 1 / 8
    stall: float = STALL_SECONDS_PER_BYTE

    def __post_init__(self) -> None:
        check(self, ("fraction",), ("period",), ("stall",))
        if self.fraction > 1:
            raise ConfigError(f"Rounds.fraction is {self.fraction}", "Give a part of the blocks, at most 1")


@dataclass(frozen=True)
class Scenario:
    platform: Platform = TABLE_2
    training: Training = field(default_factory=Training)
    faults: Faults = field(default_factory=Faults)
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    rounds: Rounds = field(default_factory=Rounds)
    rework: Rework = field(default_factory=lambda: measured("lda-reuters"))

    def __post_init__(self) -> None:
        for kind, nodes in (("workers", self.platform.worker_nodes), ("servers", self.platform.servers.nodes)):
            expected = nodes * self.training.compute_seconds / getattr(self.faults, kind)
            if expected > MOST_FAULTS:
                raise ConfigError(
                    f"{expected:.3g} {kind} would fail in every computation",
                    f"Give Faults.{kind} longer mean times between failures",
                )

    @property
    def times(self) -> Times:
        return times(self.platform, self.training, self.checkpoint.bytes)


@dataclass(frozen=True)
class Times:
    """Seconds of what happens without faults. ``pushed``: from the begin of an iteration until all pushes are in;
    ``checkpoint``: all workers write, or read, theirs; ``part``, ``model``: one server reads its part of the model, all do."""

    pushed: float
    pull: float
    checkpoint: float
    part: float
    model: float

    @property
    def iteration(self) -> float:
        return self.pushed + self.pull


@lru_cache(maxsize=256)
def times(platform: Platform, training: Training, checkpoint_bytes: float) -> Times:
    size, servers = training.model_bytes, platform.servers.nodes
    return Times(
        pushed=exchange(platform, (Step("push", size, wait=training.compute_seconds),)),
        pull=exchange(platform, (Step("pull", size),)),
        checkpoint=store(platform.storage, platform.disk, platform.worker_nodes, checkpoint_bytes),
        part=store(platform.storage, platform.disk, 1, size / servers),
        model=store(platform.storage, platform.disk, servers, size / servers),
    )


def baseline_seconds(scenario: Scenario) -> float:
    """Seconds of the whole training without faults and without saving anything."""
    return scenario.training.iterations * scenario.times.iteration


def young(scenario: Scenario) -> int:
    """Iterations between checkpoints that cost least, by Young's first order: sqrt(2 x seconds to write x mean seconds between
    failures)."""
    nodes, servers = scenario.platform.worker_nodes, scenario.platform.servers.nodes
    rate = nodes / scenario.faults.workers + servers / scenario.faults.servers
    if rate == 0:
        return scenario.training.iterations
    seconds = sqrt(2 * scenario.times.checkpoint / rate)
    return min(max(1, round(seconds / scenario.times.iteration)), scenario.training.iterations)
