"""All that a simulated run depends on: what is trained where, what fails, and how state is saved."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from math import sqrt
from typing import Literal

from experiments.simulate.faults import Faults
from experiments.simulate.network import TransferStep, exchange_seconds, storage_seconds
from experiments.simulate.platform import GB, TABLE_2, Platform, TrainingLoad, check_fields
from experiments.simulate.rework import Rework, measured_rework
from scar.errors import ConfigError
from scar_compare.trial_plans import recorded_as

# One round at r = 1/8 held up 100 MB for 6.6 ms: `python -m benchmarks dump`
STALL_SECONDS_PER_BYTE = 6.6e-3 / 12.5e6
MOST_FAULTS = 100  # of one kind in one computation: what a run may take to simulate is limited


@recorded_as("Strategy")
@dataclass(frozen=True)
class SimulatedStrategy:
    """What happens when a worker, or a server, fails.

    ``workers``: all go back to the checkpoint, its iteration is done again with the servers' parameters,
    or the servers do without. ``servers``: all go back, or only what it held.
    """

    name: str
    workers: Literal["rollback", "redo", "ignore"]
    servers: Literal["rollback", "partial"]


CKPT = SimulatedStrategy("ckpt", "rollback", "rollback")
PS = SimulatedStrategy("ps", "redo", "rollback")
IGNR = SimulatedStrategy("ignr", "ignore", "rollback")
SCAR = SimulatedStrategy("scar", "redo", "partial")
SCAR_IGNR = SimulatedStrategy("scar-ignr", "ignore", "partial")
PUBLISHED = (CKPT, PS, IGNR)
STRATEGIES = (*PUBLISHED, SCAR, SCAR_IGNR)


@recorded_as("Checkpoint")
@dataclass(frozen=True)
class WorkerCheckpoint:
    """CKPT: each worker writes ``bytes`` after every ``interval`` iterations, while all wait."""

    bytes: float = 4 * GB
    interval: int = 4

    def __post_init__(self) -> None:
        check_fields(self, ("bytes",), ("interval",))


@dataclass(frozen=True)
class Rounds:
    """Checkpoints of the servers, in the background: everything in ``period`` iterations.

    For SCAR in rounds of ``fraction``.

    ``stall``: seconds for which a server's round holds up training, for each byte that it copies.
    """

    period: int = 8
    fraction: float = 1 / 8
    stall: float = STALL_SECONDS_PER_BYTE

    def __post_init__(self) -> None:
        check_fields(self, ("fraction",), ("period",), ("stall",))
        if self.fraction > 1:
            raise ConfigError(f"Rounds.fraction is {self.fraction}", "Give a part of the blocks, at most 1")


@dataclass(frozen=True)
class Scenario:
    platform: Platform = TABLE_2
    training: TrainingLoad = field(default_factory=TrainingLoad)
    faults: Faults = field(default_factory=Faults)
    checkpoint: WorkerCheckpoint = field(default_factory=WorkerCheckpoint)
    rounds: Rounds = field(default_factory=Rounds)
    rework: Rework = field(default_factory=lambda: measured_rework("lda-reuters"))

    def __post_init__(self) -> None:
        for kind, nodes in (
            ("workers", self.platform.worker_nodes),
            ("servers", self.platform.servers.nodes),
        ):
            expected = nodes * self.training.compute_seconds / getattr(self.faults, kind)
            if expected > MOST_FAULTS:
                raise ConfigError(
                    f"{expected:.3g} {kind} would fail in every computation",
                    f"Give Faults.{kind} longer mean times between failures",
                )

    @property
    def times(self) -> PhaseSeconds:
        return phase_seconds(self.platform, self.training, self.checkpoint.bytes)


@dataclass(frozen=True)
class PhaseSeconds:
    """Seconds of what happens without faults.

    ``pushed``: from the begin of an iteration until all pushes are in; ``checkpoint``: all workers write,
    or read, theirs; ``part``, ``model``: one server reads its part of the model, all do.
    """

    pushed: float
    pull: float
    checkpoint: float
    part: float
    model: float

    @property
    def iteration(self) -> float:
        return self.pushed + self.pull


@lru_cache(maxsize=256)
def phase_seconds(platform: Platform, training: TrainingLoad, checkpoint_bytes: float) -> PhaseSeconds:
    size = training.model_bytes
    servers = platform.servers.nodes
    return PhaseSeconds(
        pushed=exchange_seconds(platform, (TransferStep("push", size, wait=training.compute_seconds),)),
        pull=exchange_seconds(platform, (TransferStep("pull", size),)),
        checkpoint=storage_seconds(platform.storage, platform.disk, platform.worker_nodes, checkpoint_bytes),
        part=storage_seconds(platform.storage, platform.disk, 1, size / servers),
        model=storage_seconds(platform.storage, platform.disk, servers, size / servers),
    )


def baseline_seconds(scenario: Scenario) -> float:
    """Seconds of the whole training without faults and without saving anything."""
    return scenario.training.iterations * scenario.times.iteration


def young_interval(scenario: Scenario) -> int:
    """Iterations between checkpoints that cost least, by Young's formula.

    To first order: sqrt(2 x seconds to write x mean seconds between failures).
    """
    nodes = scenario.platform.worker_nodes
    servers = scenario.platform.servers.nodes
    rate = nodes / scenario.faults.workers + servers / scenario.faults.servers
    if rate == 0:
        return scenario.training.iterations
    seconds = sqrt(2 * scenario.times.checkpoint / rate)
    return min(max(1, round(seconds / scenario.times.iteration)), scenario.training.iterations)
