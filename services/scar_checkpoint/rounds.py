"""What the coordinator knows about the round under way, and what it asks its service to do. Only data."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from scar.errors import CorruptCheckpoint
from scar.placement import Member
from scar.v1.checkpoint_pb2 import Manifest
from scar.v1.ps_pb2 import ObjectRef
from scar_runtime.objects import ObjectHeader
from scar_runtime.running import RunningCheckpoint
from scar_runtime.selection import Decision, Report

REWRITE_AGE = 8  # manifests after which a compaction is too old to be committed

Saved = tuple[ObjectRef, ObjectHeader]


@dataclass(frozen=True)
class Measure:
    """Ask a shard for its distances, once its open clock is at least ``min_clock``."""

    shard: Member
    epoch: int
    round: int
    min_clock: int
    skip: bool


@dataclass(frozen=True)
class Copy:
    """Tell a shard to save what was chosen; read the header of its object."""

    shard: Member
    epoch: int
    round: int
    decision: Decision


@dataclass(frozen=True, eq=False)
class Commit:
    """Create ``running.manifest``."""

    round: int
    running: RunningCheckpoint


@dataclass(frozen=True)
class Finish:
    """Tell a shard how the round ended, then call :meth:`Coordinator.finished`, also when it could not be told."""

    shard: Member
    round: int
    committed: bool
    manifest: int


@dataclass(frozen=True)
class Abandon:
    """Whatever is still asked of this round's shards is void."""

    round: int


@dataclass(frozen=True)
class Done:
    """A round has ended: ``result`` is "committed", "unchanged" or "failed"; ``tickets`` are those who wait for it."""

    result: str
    summary: Summary
    tickets: tuple[int, ...]


Action = Measure | Copy | Commit | Finish | Abandon | Done


@dataclass(frozen=True)
class Summary:
    """How a round went; times in seconds. ``error``: why nothing was committed."""

    round: int
    manifest: int = 0
    clock: int = 0
    blocks_total: int = 0
    blocks_saved: int = 0
    bytes: int = 0
    select_seconds: float = 0.0
    copy_seconds: float = 0.0
    commit_seconds: float = 0.0
    missed: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True)
class Ticket:
    """Somebody waits for a round that begins now. Selection "" and fraction 0 mean the job's; ``shard``: of this one alone."""

    number: int
    selection: str
    fraction: float
    shard: str = ""


@dataclass(frozen=True, eq=False)
class Rewrite:
    """A compaction that waits for the next manifest: ``ref`` stands for the objects ``old`` of those in ``base`` (keys)."""

    manifest: int
    old: frozenset[str]
    base: frozenset[str]
    ref: ObjectRef
    header: ObjectHeader

    def applied(self, running: RunningCheckpoint, number: int) -> RunningCheckpoint | None:
        """The newest running checkpoint, of manifest ``number``, with the compaction; None: it does not fit any more."""
        if number - self.manifest > REWRITE_AGE:
            return None
        try:
            return running.rewritten(set(self.old), set(self.base), self.ref, self.header)
        except CorruptCheckpoint:
            return None


class Stage(Enum):
    MEASURING = "waiting for distances"
    SAVING = "waiting for objects"
    COMMITTING = "waiting for the manifest"
    FINISHING = "telling the shards"


@dataclass(eq=False)
class Round:
    """One round. Shards are named by their member keys. ``deadline``: when those still missing are given up."""

    number: int
    selection: str
    fraction: float
    min_clock: int
    ticket: Ticket | None
    shards: dict[str, Member]
    stage: Stage = Stage.MEASURING
    waiting: set[str] = field(default_factory=set)
    again: dict[str, float] = field(default_factory=dict)
    refusals: dict[str, int] = field(default_factory=dict)
    missed: dict[str, str] = field(default_factory=dict)
    measured: dict[str, list[Report]] = field(default_factory=dict)
    clocks: dict[str, int] = field(default_factory=dict)
    saved: dict[str, Saved | None] = field(default_factory=dict)
    rewrite: Rewrite | None = None
    copy_seconds: float = 0.0
    answered: float | None = None
    decided: float = 0.0
    deadline: float = 0.0

    def told(self) -> list[Member]:
        """Shards that have a round open and must hear how it ended."""
        return [self.shards[key] for key in self.shards if key in self.measured]

    @property
    def objects(self) -> list[Saved]:
        """What was saved so far."""
        return [found for found in self.saved.values() if found is not None]

    @property
    def reasons(self) -> str:
        """Why shards missed the round."""
        return "; ".join(sorted(f"{self.shards[key].name}: {why}" for key, why in self.missed.items()))

    def summary(self, blocks: int, now: float, manifest: Manifest | None, error: str) -> Summary:
        """How it went, of a job with so many blocks; ``manifest``: what was committed."""
        begun, decided = self.answered or now, self.decided or now
        refs = [ref for ref, _ in self.objects] if manifest else []
        return Summary(
            self.number,
            manifest.number if manifest else 0,
            manifest.clock if manifest else min(self.clocks.values(), default=0),
            blocks,
            blocks_saved=sum(ref.blocks for ref in refs),
            bytes=sum(ref.bytes for ref in refs),
            select_seconds=decided - begun,
            copy_seconds=self.copy_seconds,
            commit_seconds=now - decided,
            missed=tuple(sorted(self.shards[key].name for key in self.missed)),
            error=error,
        )

    def drop(self, key: str, why: str) -> None:
        """A shard takes no further part."""
        self.waiting.discard(key)
        self.again.pop(key, None)
        self.saved.pop(key, None)
        self.missed[key] = why
