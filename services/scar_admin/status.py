"""What a cluster looks like at one moment, and what each of its processes is. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from scar.losses import LossPoint
from scar.v1 import (
    checkpoint_pb2,
    detector_pb2,
    ps_pb2,
    recovery_pb2,
    types_pb2,
    worker_pb2,
)
from scar.wire.loss_messages import point_from_proto

LATE_CLOCKS = 64  # of these a loss may become known later than that of the next clock
DONE = 1 << 62  # an open clock from here on means: every worker has finished


@dataclass(frozen=True)
class ClusterStatus:
    """One look at a cluster. Mappings are by member name; a service that did not answer is missing (or None).

    ``losses``: of whole clocks only (docs/protocol.md §4); ``fractions``: of the data, for those that are of
    less than all; ``metrics``: by clock and name, for those that have some. ``waits``: what shards wait for
    that are well, which is normal for an instant: a clock that is open, a worker that computes. ``redis``: it
    answers the detector; None: nobody says.
    """

    recovery: recovery_pb2.RecoveryStatus | None = None
    job: types_pb2.JobSpec | None = None
    epoch: types_pb2.Epoch | None = None
    checkpoint: checkpoint_pb2.CheckpointStatus | None = None
    shards: Mapping[str, ps_pb2.ShardStatus] = field(default_factory=dict)
    workers: Mapping[str, worker_pb2.WorkerStatus] = field(default_factory=dict)
    members: Mapping[str, detector_pb2.MemberView] = field(default_factory=dict)
    redis: bool | None = None
    failures: tuple[recovery_pb2.FailureRecord, ...] = ()
    losses: Mapping[int, float] = field(default_factory=dict)
    fractions: Mapping[int, float] = field(default_factory=dict)
    metrics: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    waits: tuple[str, ...] = ()

    @property
    def number(self) -> int:
        """Newest epoch; 0: none yet."""
        return self.epoch.number if self.epoch else 0

    @property
    def clock(self) -> int:
        """Clocks closed on every shard; when all workers have finished, those that have a loss."""
        clocks = [
            shard.clock for shard in self.shards.values() if any(table.blocks for table in shard.tables)
        ]
        lowest = min(clocks, default=0)
        return max(self.losses, default=-1) + 1 if lowest >= DONE else lowest

    @property
    def loss(self) -> float | None:
        """Loss of the last clock that has one."""
        return self.losses[max(self.losses)] if self.losses else None

    @property
    def finished(self) -> recovery_pb2.FinishedRecord | None:
        """The job's end, once the model as its workers left it is durable."""
        return self.recovery.finished if self.recovery and self.recovery.HasField("finished") else None

    @property
    def revisions(self) -> Sequence[recovery_pb2.JobRevision]:
        """What the job was resumed with otherwise than before, oldest first."""
        return self.recovery.revisions if self.recovery else ()

    def left_early(self, since: int) -> bool:
        """Nobody works any more, and nobody has said that the work is done.

        ``since``: an epoch in which somebody worked.
        """
        epoch = self.epoch
        known = self.recovery is not None and epoch is not None and epoch.number >= since
        return known and epoch is not None and not epoch.workers and not epoch.finished

    @property
    def store(self) -> str:
        """URL of the store; empty: not known."""
        return self.recovery.store if self.recovery else ""

    @property
    def fraction(self) -> float:
        """Of the data that :attr:`loss` is of."""
        return self.fractions.get(max(self.losses, default=0), 1.0)

    @property
    def silent_shards(self) -> list[str]:
        """Shards of the epoch that did not answer, and may know losses that no other one does."""
        shards = self.epoch.shards if self.epoch else ()
        return [one.name for one in shards if one.name not in self.shards]

    @property
    def loss_clock(self) -> int:
        """Clock of :attr:`loss`; -1: none."""
        return max(self.losses, default=-1)

    @property
    def newest_metrics(self) -> dict[str, float]:
        """The newest value of each."""
        return {name: value for clock in sorted(self.metrics) for name, value in self.metrics[clock].items()}

    def losses_from(self, clock: int) -> list[float]:
        """Losses of the clocks from this one on, up to the newest.

        Not a number for a clock that has none although a later one has: a worker died before it had told
        every shard of its part, or a rollback made void what was computed.
        """
        return [self.losses.get(one, math.nan) for one in range(clock, max(self.losses, default=-1) + 1)]

    @property
    def blocks(self) -> int:
        return sum(table.blocks for shard in self.shards.values() for table in shard.tables)

    @property
    def loading(self) -> int:
        """Blocks that are not served yet."""
        return sum(table.loading for shard in self.shards.values() for table in shard.tables)


@dataclass(frozen=True)
class ProcessInfo:
    """One process of a cluster, or one pod of a release (``pid`` 0).

    ``state``: "starting" | "running" | "paused" | "cut" (off from the network) | "exited" | "killed" (by a
    signal), or why a pod does not run. ``code``: exit code of the last end. ``final``: it has ended and will
    not be started again. ``part``: see :attr:`component`.
    """

    name: str
    pid: int
    state: str
    restarts: int
    code: int | None = None
    final: bool = False
    part: str = ""

    @property
    def alive(self) -> bool:
        return self.state in ("running", "paused", "cut")

    @property
    def answers(self) -> bool:
        """Not alone because somebody has frozen it, or cut it off."""
        return self.state not in ("paused", "cut")

    @property
    def component(self) -> str:
        """What it is: ps, worker, recovery, ... Where nobody has said so, its name does: ps-0."""
        return self.part or self.name.rstrip("0123456789").removesuffix("-")


def traffic_rate(shard: ps_pb2.ShardStatus) -> float:
    """Bytes a second of values that were pulled from it, and of gradients that were pushed; -1: it is too old
    to count them, or has just begun.
    """
    traffic = shard.traffic
    return traffic.bytes / traffic.seconds if traffic.seconds > 0 else -1.0


HINDERED = {"paused": "frozen", "cut": "cut off"}  # by the state of a process: what somebody has done to it


def health_word(name: str, status: ClusterStatus, process: ProcessInfo | None) -> str:
    """State of a process that is not alive; else what the detector says: "alive", "suspect", ... "?": nobody
    knows.
    """
    if process is not None and not process.alive:
        return process.state
    view = status.members.get(name)
    if view is None:
        return process.state if process else "?"
    return detector_pb2.Health.Name(view.health).removeprefix("HEALTH_").lower()


def ask_from(losses: Mapping[int, float]) -> int:
    """From which clock on to ask for losses when these are known."""
    return max(0, max(losses, default=0) - LATE_CLOCKS)


def merged_losses(shards: Iterable[ps_pb2.ShardStatus]) -> dict[int, LossPoint]:
    """What shards know of the losses, by ascending clock. One may lack what another has; none says another
    thing.
    """
    best: dict[int, ps_pb2.LossPoint] = {}
    for point in (one for shard in shards for one in shard.losses):
        known = best.setdefault(point.clock, point)
        if known is not point and _informed(point) > _informed(known):
            best[point.clock] = point
    return {clock: point_from_proto(best[clock]) for clock in sorted(best)}


def _informed(point: ps_pb2.LossPoint) -> tuple[float, int]:
    """The largest of a clock is the one that says most: a shard may have heard the loss alone."""
    return point.fraction or 1.0, len(point.metrics)
