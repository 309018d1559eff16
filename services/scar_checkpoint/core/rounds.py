"""The round under way: who takes part, who has answered, who misses it. Only data."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from enum import Enum

from scar.checkpoints import Checkpoint
from scar.errors import CorruptCheckpoint
from scar.placement import Member
from scar_runtime.checkpoint.manifest import Manifest, ObjectRef
from scar_runtime.checkpoint.objects import ObjectHeader
from scar_runtime.checkpoint.running_checkpoint import RunningCheckpoint
from scar_runtime.checkpoint.top_keys import KeyCounts, KeyRange, ThresholdSearch

REWRITE_AGE = 8  # manifests after which a compaction is too old to be committed

RETRY_SECONDS = 0.2  # until a shard that cannot measure yet is asked again; doubled up to RETRY_MOST
RETRY_MOST = 2.0
FINISH_SECONDS = 5.0  # to tell the shards, before the next round may begin
LATE = 1.0  # seconds after the first answer in which refusals are still asked again

SavedObject = tuple[ObjectRef, ObjectHeader]


@dataclass(frozen=True)
class RoundSummary:
    """How a round went; times in seconds. ``error``: why nothing was committed; ``unchanged``: since all is
    as it was saved.
    """

    round: int
    manifest: int = 0
    clock: int = 0
    blocks_total: int = 0
    blocks_saved: int = 0
    bytes: int = 0
    select_seconds: float = 0.0
    copy_seconds: float = 0.0
    stall_seconds: float = 0.0
    commit_seconds: float = 0.0
    missed: tuple[str, ...] = ()
    error: str = ""
    unchanged: bool = False


@dataclass(frozen=True)
class RoundTicket:
    """Somebody waits for a round that begins now. Selection "" and fraction 0 mean the job's; ``shard``:
    of this one alone.
    """

    number: int
    selection: str
    fraction: float
    shard: str = ""


@dataclass(frozen=True, eq=False)
class Rewrite:
    """A compaction that waits for the next manifest: ``ref`` stands for the objects ``old`` of those in
    ``base`` (keys).
    """

    manifest: int
    old: frozenset[str]
    base: frozenset[str]
    ref: ObjectRef
    header: ObjectHeader

    def apply_to(self, running: RunningCheckpoint, number: int) -> RunningCheckpoint | None:
        """The newest running checkpoint, of manifest ``number``, with the compaction; None: it does not
        fit any more.
        """
        if number - self.manifest > REWRITE_AGE:
            return None
        try:
            return running.rewritten(set(self.old), set(self.base), self.ref, self.header)
        except CorruptCheckpoint:
            return None


class RoundStage(Enum):
    MEASURING = "waiting for distances"
    SEARCHING = "waiting for counts of keys"
    SAVING = "waiting for objects"
    COMMITTING = "waiting for the manifest"
    FINISHING = "telling the shards"


@dataclass(eq=False)
class ActiveRound:
    """One round. Shards are named by their member keys; times are of the core's clock."""

    number: int
    selection: str
    fraction: float
    min_clock: int
    ticket: RoundTicket | None
    shards: dict[str, Member]
    stage: RoundStage = RoundStage.MEASURING
    waiting_for: set[str] = field(default_factory=set)
    retry_at: dict[str, float] = field(default_factory=dict)  # shards that could not measure yet
    refusals: dict[str, int] = field(default_factory=dict)
    missed: dict[str, str] = field(default_factory=dict)  # shard -> why
    measured: dict[str, int] = field(default_factory=dict)  # shard -> blocks that it may save
    clocks: dict[str, int] = field(default_factory=dict)  # open when the shard measured
    search: ThresholdSearch | None = None  # priority
    counts: KeyCounts | None = None  # of all shards that have answered, in what is searched
    saved: dict[str, SavedObject | None] = field(default_factory=dict)
    rewrite: Rewrite | None = None
    copy_seconds: float = 0.0
    stall_seconds: float = 0.0
    answered_at: float | None = (
        None  # when the first shard's clock was there; None: the deadline does not run
    )
    decided_at: float = 0.0
    deadline: float = 0.0  # when those still missing are given up

    def open_shards(self) -> list[Member]:
        """Shards that have a round open and must hear how it ended."""
        return [self.shards[key] for key in self.shards if key in self.measured]

    @property
    def settled(self) -> int:
        """Blocks that may be saved: those that are being loaded may not."""
        return sum(self.measured.values())

    @property
    def choosing(self) -> list[Member]:
        """Shards that have measured and take part still."""
        return [self.shards[key] for key in self.shards if key in self.measured and key not in self.missed]

    @property
    def objects(self) -> list[SavedObject]:
        """What was saved so far."""
        return [found for found in self.saved.values() if found is not None]

    @property
    def missed_text(self) -> str:
        """Why shards missed the round."""
        return "; ".join(sorted(f"{self.shards[key].name}: {why}" for key, why in self.missed.items()))

    @property
    def unchanged_text(self) -> str:
        """Why a round that nobody missed has saved nothing."""
        if self.settled:
            return "nothing has changed since it was saved"
        return "no block is in place yet: wait until they are loaded"

    @property
    def waits_for_clock(self) -> bool:
        """A periodic round that no shard has begun."""
        return self.stage is RoundStage.MEASURING and self.answered_at is None and self.ticket is None

    @property
    def refusing_text(self) -> str:
        """Why the round cannot begin; empty: it has begun, or waits for a clock."""
        if self.stage is not RoundStage.MEASURING or self.measured:
            return ""
        refusing = [key for key in self.retry_at if self.refusals[key] > 3]
        return "; ".join(f"{self.shards[key].name}: {self.missed[key]}" for key in refusing)

    def awaits_commit(self, number: int) -> bool:
        """Whether it is round ``number`` and waits for its manifest."""
        return self.number == number and self.stage is RoundStage.COMMITTING

    def start_deadline(self, now: float, seconds: float) -> None:
        """Nobody has to wait for a clock any more."""
        self.answered_at = now
        self.deadline = now + seconds

    def take_due(self, now: float) -> list[str]:
        """Shards that are to be asked again."""
        due = [shard for shard, at in self.retry_at.items() if at <= now]
        for shard in due:
            del self.retry_at[shard]
        return due

    def start_stage(self, stage: RoundStage, now: float, seconds: float) -> list[Member]:
        """The shards that are asked in it."""
        asked = self.choosing
        self.stage = stage
        self.waiting_for = {shard.key for shard in asked}
        self.deadline = now + seconds
        return asked

    def record_distances(self, shard: str, clock: int, settled: int, counts: KeyCounts) -> None:
        self.waiting_for.discard(shard)
        self.missed.pop(shard, None)
        self.measured[shard] = settled
        self.clocks[shard] = clock
        self._add_counts(counts)

    def record_counts(self, shard: str, within: KeyRange, counts: KeyCounts) -> None:
        """Those of an earlier question say nothing."""
        if self.search is not None and within == self.search.within:
            self.waiting_for.discard(shard)
            self._add_counts(counts)

    def _add_counts(self, counts: KeyCounts) -> None:
        self.counts = counts if self.counts is None else self.counts + counts

    def record_refusal(self, shard: str, reason: str, passing: bool, now: float) -> bool:
        """True: it is asked again; else it misses the round."""
        early = self.answered_at is None or now < self.answered_at + LATE
        if self.stage is not RoundStage.MEASURING or not passing or not early:
            self.drop_shard(shard, reason)
            return False
        times = self.refusals.get(shard, 0) + 1
        self.refusals[shard] = times
        self.waiting_for.discard(shard)
        self.retry_at[shard] = now + min(RETRY_MOST, RETRY_SECONDS * 2 ** min(times - 1, 8))
        self.missed[shard] = reason
        return True

    def record_object(
        self, shard: str, found: SavedObject | None, copy_seconds: float, stall_seconds: float = 0.0
    ) -> None:
        if found is not None and found[0].owner != shard:
            self.drop_shard(shard, f"its object says that {found[0].owner} wrote it")
            return
        self.waiting_for.discard(shard)
        self.saved[shard] = found
        self.copy_seconds = max(self.copy_seconds, copy_seconds)
        self.stall_seconds = max(self.stall_seconds, stall_seconds)

    def keep_listed(self, running: RunningCheckpoint) -> list[SavedObject]:
        """What was saved so far. Shards whose objects cannot be read behind ``running`` miss the round."""
        for key, found in list(self.saved.items()):
            if found is not None and not running.lists_all(found[1].baselines):
                self.drop_shard(key, "what its object has the changes of is not listed any more")
        return self.objects

    def names_of(self, keys: set[str]) -> list[str]:
        return sorted(self.shards[key].name for key in keys)

    def summarise(
        self, blocks: int, now: float, manifest: Manifest | None, error: str, unchanged: bool = False
    ) -> RoundSummary:
        """How it went, of a job with so many blocks; ``manifest``: what was committed; ``unchanged``: nothing
        was left to save of what is in place.
        """
        began = self.answered_at or now
        decided = self.decided_at or now
        refs = [ref for ref, _ in self.objects] if manifest else []
        return RoundSummary(
            self.number,
            manifest.number if manifest else 0,
            manifest.clock if manifest else min(self.clocks.values(), default=0),
            blocks,
            blocks_saved=sum(ref.blocks for ref in refs),
            bytes=sum(ref.bytes for ref in refs),
            select_seconds=decided - began,
            copy_seconds=self.copy_seconds,
            stall_seconds=self.stall_seconds,
            commit_seconds=now - decided,
            missed=tuple(sorted(self.shards[key].name for key in self.missed)),
            error=error,
            unchanged=unchanged and self.settled > 0,
        )

    def start_finishing(self, told: Sequence[Member], now: float) -> None:
        """The round is decided; these shards hear of it."""
        self.stage = RoundStage.FINISHING
        self.waiting_for = {shard.key for shard in told}
        self.retry_at = {}
        self.start_deadline(now, FINISH_SECONDS)

    def drop_shards(self, keys: Set[str], why: str) -> None:
        for key in keys:
            self.drop_shard(key, why)

    def drop_shard(self, key: str, why: str) -> None:
        """A shard takes no further part."""
        self.waiting_for.discard(key)
        self.retry_at.pop(key, None)
        self.saved.pop(key, None)
        self.missed[key] = why


def new_round(
    number: int, policy: Checkpoint, ticket: RoundTicket | None, shards: dict[str, Member], due_clock: int
) -> ActiveRound:
    """As the ticket says; a periodic one as the job says, and not before the open clock is ``due_clock``."""
    if ticket is None:
        return ActiveRound(number, policy.selection, policy.effective_fraction, due_clock, None, shards)
    selection = ticket.selection or policy.selection
    fraction = ticket.fraction or policy.effective_fraction
    return ActiveRound(number, selection, fraction, 0, ticket, shards)
