"""What the recovery coordinator's core is told: frozen events.

Who is there comes from members and the detector, the rest are results of actions and the clock.
"""

from __future__ import annotations

from dataclasses import dataclass

from scar.placement import Epoch, Member
from scar.tables import Job
from scar_recovery.core.block_sources import ReplicaCopy, WorkerOffer
from scar_recovery.core.epoch_intent import FrozenTransfer, GlobalIds, RollbackRequest
from scar_recovery.core.hot_blocks import ShardTraffic
from scar_recovery.core.story_summaries import (
    EpochSummary,
    TransferSummary,
    count_blocks,
    summarise_epoch,
)
from scar_runtime.failure_records import UNKNOWN_SECONDS


@dataclass(frozen=True)
class FailureReport:
    """What the detector, or a successor's arrival, says about a member. Durations are seconds.

    ``proved``: the member is dead for certain, else a suspect. ``silence``: since its last sign of life.
    ``detect_seconds``: the same in the ledger, where 0 would be a claim; -1: whoever reports did not measure.
    ``suspect_seconds``: of these, until somebody suspected it.
    """

    member: Member
    proved: bool
    silence: float = 0.0
    detect_seconds: float = UNKNOWN_SECONDS
    evidence: str = ""
    suspect_seconds: float = UNKNOWN_SECONDS


# --- who is there


@dataclass(frozen=True)
class MemberArrived:
    """A member announces itself, perhaps again. Ask :meth:`Membership.check_arrival` first."""

    member: Member


@dataclass(frozen=True)
class MemberLeft:
    """A member wants to go. ``finished``: a worker whose work is done."""

    member: Member
    finished: bool = False


@dataclass(frozen=True)
class MemberHeard:
    """A sign of life of the member with this key."""

    key: str


@dataclass(frozen=True)
class MemberFailed:
    """A member is dead (proved) or silent (suspected)."""

    report: FailureReport


@dataclass(frozen=True)
class SuspectsAnswered:
    """Result of ``ConfirmSuspects``: keys of those that answered, and of those that did not."""

    alive: tuple[str, ...]
    silent: tuple[str, ...]


@dataclass(frozen=True)
class CoordinatorsSeen:
    """These coordinators are there, and no others."""

    members: tuple[Member, ...]


@dataclass(frozen=True)
class ShardsExcluded:
    """Shards with these keys, and no others, must get no blocks."""

    keys: frozenset[str]


MemberEvent = (
    MemberArrived
    | MemberLeft
    | MemberHeard
    | MemberFailed
    | SuspectsAnswered
    | CoordinatorsSeen
    | ShardsExcluded
)


# --- the job


@dataclass(frozen=True)
class JobStarted:
    """A leader takes the job over.

    ``history``: its newest epochs, ascending, back to one that has shards, or to the first.
    ``newest_failure``: highest number of a failure record. ``begins_run``: somebody starts or resumes the
    job, so its workers wait for each other.
    """

    job: Job
    history: tuple[Epoch, ...] = ()
    newest_failure: int = 0
    begins_run: bool = False

    def for_story(self) -> JobStartedSummary:
        history = tuple(summarise_epoch(epoch) for epoch in self.history)
        return JobStartedSummary(self.job.name, history, self.newest_failure, self.begins_run)


@dataclass(frozen=True)
class JobStartedSummary:
    job: str
    history: tuple[EpochSummary, ...]
    newest_failure: int
    begins_run: bool


@dataclass(frozen=True)
class RunBegun:
    """Somebody resumes the job that this leader has, and no worker is there."""


@dataclass(frozen=True)
class JobEnded:
    """The job is over: one last epoch sends every shard away, and nothing follows it."""


JobEvent = JobStarted | RunBegun | JobEnded


# --- results of actions


@dataclass(frozen=True)
class EpochCommitted:
    """This epoch is the newest in the store. Its author may be another leader."""

    epoch: Epoch

    def for_story(self) -> EpochCommittedSummary:
        return EpochCommittedSummary(summarise_epoch(self.epoch))


@dataclass(frozen=True)
class EpochCommittedSummary:
    epoch: EpochSummary


@dataclass(frozen=True)
class EpochRefused:
    """The store did not take this epoch, or did not say what is saved."""

    number: int
    cause: str
    reason: str


@dataclass(frozen=True)
class ReplicasCollected:
    """Copies that survivors keep of lost blocks. ``silent``: keys of survivors that did not answer."""

    number: int
    copies: tuple[ReplicaCopy, ...]
    silent: tuple[str, ...] = ()

    def for_story(self) -> ReplicasCollectedSummary:
        blocks = count_blocks([copy.state.ids for copy in self.copies])
        return ReplicasCollectedSummary(self.number, blocks, self.silent)


@dataclass(frozen=True)
class ReplicasCollectedSummary:
    number: int
    blocks: int
    silent: tuple[str, ...]


@dataclass(frozen=True)
class OffersCollected:
    """What workers hold of lost blocks. ``silent``: keys of those that have not answered in time."""

    number: int
    offers: tuple[WorkerOffer, ...]
    silent: tuple[str, ...] = ()

    def for_story(self) -> OffersCollectedSummary:
        blocks = count_blocks([offer.state.ids for offer in self.offers])
        return OffersCollectedSummary(self.number, blocks, self.silent)


@dataclass(frozen=True)
class OffersCollectedSummary:
    number: int
    blocks: int
    silent: tuple[str, ...]


@dataclass(frozen=True)
class ClocksRead:
    """``highest``: highest open clock of the shards that answered."""

    number: int
    highest: int


@dataclass(frozen=True)
class BlocksMoved:
    """A move in epoch ``number`` has ended. ``done``: transfers that lack only their epoch."""

    number: int
    done: tuple[FrozenTransfer, ...]
    complete: bool

    def for_story(self) -> BlocksMovedSummary:
        done = tuple(moved.transfer.for_story() for moved in self.done)
        return BlocksMovedSummary(self.number, done, self.complete)


@dataclass(frozen=True)
class BlocksMovedSummary:
    number: int
    done: tuple[TransferSummary, ...]
    complete: bool


@dataclass(frozen=True)
class TrafficRead:
    """What each shard of epoch ``number`` moves; (): not all have said it, or it is level."""

    number: int
    traffic: tuple[ShardTraffic, ...]

    def for_story(self) -> TrafficReadSummary:
        return TrafficReadSummary(self.number, {one.shard: round(one.rate) for one in self.traffic})


@dataclass(frozen=True)
class TrafficReadSummary:
    """``rates``: bytes a second by shard."""

    number: int
    rates: dict[str, int]


@dataclass(frozen=True)
class ShardSaved:
    """What would be missed most of this leaving shard is saved, or cannot be."""

    key: str


@dataclass(frozen=True)
class LeaderReplaced:
    """Another coordinator leads. ``author``: its incarnation, or who it is in words."""

    author: str


ResultEvent = (
    EpochCommitted
    | EpochRefused
    | ReplicasCollected
    | OffersCollected
    | ClocksRead
    | BlocksMoved
    | TrafficRead
    | ShardSaved
    | LeaderReplaced
)


# --- what shards and the clock say


@dataclass(frozen=True)
class EpochLoaded:
    """Every shard of this epoch has adopted it and serves all its blocks."""

    number: int


@dataclass(frozen=True)
class DamageFound:
    """Owners cannot load these blocks: what epoch ``number`` names cannot be read. May be repeated."""

    number: int
    blocks: GlobalIds
    description: str

    def for_story(self) -> DamageFoundSummary:
        return DamageFoundSummary(self.number, len(self.blocks), self.description)


@dataclass(frozen=True)
class DamageFoundSummary:
    number: int
    blocks: int
    description: str


# --- what workers ask for


@dataclass(frozen=True)
class RollbackAsked:
    """By a worker, for the first time or again."""

    request: RollbackRequest


@dataclass(frozen=True)
class RollbackFailed:
    """What was to be gone back to, because of the loss of this clock, cannot be read any more."""

    clock: int


RollbackEvent = RollbackAsked | RollbackFailed


@dataclass(frozen=True)
class TimePassed:
    """Nothing but that it is later now."""


PlannerEvent = MemberEvent | JobEvent | ResultEvent | EpochLoaded | DamageFound | RollbackEvent | TimePassed
