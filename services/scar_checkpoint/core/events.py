"""What the checkpoint coordinator hears (events) and what it asks its shell to do (actions); frozen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from scar.event_log import EventSummary, describe_epoch
from scar.placement import Epoch, Member
from scar_checkpoint.core.rounds import ActiveRound, Rewrite, RoundSummary, RoundTicket, SavedObject
from scar_runtime.checkpoint.running_checkpoint import RunningCheckpoint
from scar_runtime.checkpoint.selection import BY_DISTANCE, RoundSelection
from scar_runtime.checkpoint.top_keys import KeyCounts, KeyRange

# --- events


@dataclass(frozen=True, eq=False)
class LeadershipGained:
    """Go on from this running checkpoint.

    ``number``: the highest manifest that exists, should newer ones be damaged; ``age``: seconds since it was
    committed, -1 for none.
    """

    running: RunningCheckpoint
    number: int
    age: float

    def for_story(self) -> EventSummary:
        fields = {"manifest": self.running.manifest.number, "number": self.number, "age": self.age}
        return EventSummary("LeadershipGained", fields)


@dataclass(frozen=True)
class ReadFailed:
    """The running checkpoint could not be read."""

    reason: str


@dataclass(frozen=True)
class LeadershipLost:
    """Lead no more."""


@dataclass(frozen=True, eq=False)
class EpochAdopted:
    """A newer placement."""

    epoch: Epoch

    def for_story(self) -> EventSummary:
        return EventSummary("EpochAdopted", describe_epoch(self.epoch))


@dataclass(frozen=True)
class RoundTriggered:
    """Run a round as soon as the one under way is over; one that only waits for its clock makes room."""

    ticket: RoundTicket


@dataclass(frozen=True, eq=False)
class DistancesMeasured:
    """One shard (its member key) has measured its ``settled`` blocks at its open ``clock``. ``counts``: of
    their keys, by the first digit; zeros where nobody looks at distances.
    """

    round: int
    shard: str
    clock: int
    settled: int
    counts: KeyCounts

    def for_story(self) -> EventSummary:
        fields = {"round": self.round, "shard": self.shard, "clock": self.clock, "blocks": self.settled}
        return EventSummary("DistancesMeasured", fields | {"changed": int(self.counts.sum())})


@dataclass(frozen=True, eq=False)
class KeysCounted:
    """One shard has counted its keys in a range."""

    round: int
    shard: str
    within: KeyRange
    counts: KeyCounts

    def for_story(self) -> EventSummary:
        fields = {"round": self.round, "shard": self.shard, "depth": self.within.depth}
        return EventSummary("KeysCounted", fields | {"keys": int(self.counts.sum())})


@dataclass(frozen=True)
class ShardRefused:
    """A shard could not measure or save. ``passing``: it may be able to in a moment."""

    round: int
    shard: str
    reason: str
    passing: bool


@dataclass(frozen=True, eq=False)
class BlocksSaved:
    """One shard's object is durable and its header was read; None: it had nothing to save."""

    round: int
    shard: str
    found: SavedObject | None
    copy_seconds: float
    stall_seconds: float = 0.0

    def for_story(self) -> EventSummary:
        key = self.found[0].key if self.found else ""
        blocks = self.found[0].blocks if self.found else 0
        fields = {"round": self.round, "shard": self.shard, "object": key, "blocks": blocks}
        return EventSummary("BlocksSaved", fields)


@dataclass(frozen=True, eq=False)
class ManifestCommitted:
    """The manifest exists."""

    round: int
    running: RunningCheckpoint

    def for_story(self) -> EventSummary:
        fields = {"round": self.round, "manifest": self.running.manifest.number}
        return EventSummary("ManifestCommitted", fields)


@dataclass(frozen=True, eq=False)
class ManifestTaken:
    """The number existed already: ``running`` is the newest running checkpoint now, ``number`` the highest
    manifest that exists.
    """

    round: int
    running: RunningCheckpoint
    number: int

    def for_story(self) -> EventSummary:
        manifest = self.running.manifest
        fields = {"round": self.round, "manifest": manifest.number, "author": manifest.author}
        return EventSummary("ManifestTaken", fields | {"number": self.number})


@dataclass(frozen=True)
class CommitFailed:
    """The manifest could not be created, or nobody knows whether it was."""

    round: int
    reason: str


@dataclass(frozen=True)
class ShardFinished:
    """A shard was told how the round ended, or cannot be."""

    round: int
    shard: str


@dataclass(frozen=True, eq=False)
class ObjectsCompacted:
    """An object was written that can stand for several; the next manifest will list it."""

    rewrite: Rewrite

    def for_story(self) -> EventSummary:
        fields = {"object": self.rewrite.ref.key, "replaces": len(self.rewrite.old)}
        return EventSummary("ObjectsCompacted", fields)


@dataclass(frozen=True)
class ClockTicked:
    """Time has passed; about ten times a second."""


ShardEvent = DistancesMeasured | KeysCounted | ShardRefused | BlocksSaved | ShardFinished
CommitEvent = ManifestCommitted | ManifestTaken | CommitFailed
CoordinatorEvent = (
    LeadershipGained
    | ReadFailed
    | LeadershipLost
    | EpochAdopted
    | RoundTriggered
    | ObjectsCompacted
    | ClockTicked
    | ShardEvent
    | CommitEvent
)

# --- actions

MEASURE_SECONDS = 60.0  # a shard's clock may take longer: then it is asked again
TELL_SECONDS = 2.0  # to tell one shard how a round ended

# how rounds end
COMMITTED = "committed"
UNCHANGED = "unchanged"
FAILED = "failed"


@dataclass(frozen=True)
class ReadCheckpoint:
    """Read the newest running checkpoint, to go on from it; then :class:`LeadershipGained` or
    :class:`ReadFailed`.
    """


@dataclass(frozen=True)
class MeasureDistances:
    """Ask a shard for its distances, once its open clock is at least ``min_clock``; then
    :class:`DistancesMeasured` or :class:`ShardRefused`.

    ``skip``: it need not measure, only say how many blocks it has; ``timeout``: seconds it may take.
    """

    shard: Member
    epoch: int
    round: int
    min_clock: int
    skip: bool
    timeout: float = MEASURE_SECONDS


@dataclass(frozen=True)
class CountKeys:
    """Ask a shard that has measured to count its keys in a range; then :class:`KeysCounted` or
    :class:`ShardRefused`. ``timeout``: seconds it may take.
    """

    shard: Member
    epoch: int
    round: int
    within: KeyRange
    timeout: float


@dataclass(frozen=True)
class CopyBlocks:
    """Tell a shard to save what was chosen, and read the header of its object; then :class:`BlocksSaved` or
    :class:`ShardRefused`. ``timeout``: seconds it may take. ``baselines``: keys of its objects that are
    listed, so that what has changed since may be saved alone; None: it saves whole blocks.
    """

    shard: Member
    epoch: int
    round: int
    selection: RoundSelection
    timeout: float
    baselines: tuple[str, ...] | None = None


@dataclass(frozen=True, eq=False)
class CommitManifest:
    """Create ``running.manifest``; then one of :data:`CommitEvent`.

    ``keep``: a number that is free although so many newer ones exist was collected, and means nothing.
    """

    round: int
    running: RunningCheckpoint
    keep: int

    def for_story(self) -> EventSummary:
        manifest = self.running.manifest
        fields: dict[str, object] = {
            "round": self.round,
            "manifest": manifest.number,
            "parent": manifest.parent,
        }
        return EventSummary(
            "CommitManifest", fields | {"objects": len(manifest.objects), "full": manifest.full}
        )


@dataclass(frozen=True)
class FinishRound:
    """Tell a shard how the round ended; then :class:`ShardFinished`, also when it could not be told.

    ``object_key``: of this shard, that the manifest names; ``timeout``: seconds for all attempts.
    """

    shard: Member
    round: int
    committed: bool
    manifest: int
    object_key: str
    timeout: float = TELL_SECONDS


@dataclass(frozen=True)
class AbandonRound:
    """Whatever is still asked of this round's shards is void."""

    round: int


@dataclass(frozen=True)
class RoundDone:
    """A round has ended; ``tickets`` are those who wait for it."""

    result: str
    summary: RoundSummary
    tickets: tuple[int, ...]


CoordinatorAction = (
    ReadCheckpoint
    | MeasureDistances
    | CountKeys
    | CopyBlocks
    | CommitManifest
    | FinishRound
    | AbandonRound
    | RoundDone
)


def measure_distances(current: ActiveRound, shard: str, epoch: int) -> MeasureDistances:
    """What this shard (its member key) is asked when the round begins, and again when it has refused."""
    return MeasureDistances(
        current.shards[shard],
        epoch,
        current.number,
        current.min_clock,
        skip=current.selection not in BY_DISTANCE,
    )


def finish_round(current: ActiveRound, shards: Iterable[Member], summary: RoundSummary) -> list[FinishRound]:
    """What these shards are told: the manifest, if there is one, names the objects of some."""
    kept = {ref.owner: ref.key for ref, _ in current.objects} if summary.manifest else {}
    return [
        FinishRound(
            shard,
            current.number,
            committed=shard.key in kept,
            manifest=summary.manifest,
            object_key=kept.get(shard.key, ""),
        )
        for shard in shards
    ]
