"""What the recovery coordinator's core wants done: frozen actions, each answered by an event."""

from __future__ import annotations

from dataclasses import dataclass

from scar.placement import Member
from scar_recovery.core.block_sources import ReplicaCopy, WorkerOffer
from scar_recovery.core.epoch_intent import BlocksByTable, EpochIntent, Transfer
from scar_recovery.core.membership import MemberFailure
from scar_recovery.core.story_summaries import TransferSummary, count_blocks


@dataclass(frozen=True)
class CommitEpoch:
    """Create this epoch. ``failures``: what it repairs. Answer: ``EpochCommitted`` or ``EpochRefused``."""

    intent: EpochIntent
    failures: tuple[MemberFailure, ...] = ()
    copies: tuple[ReplicaCopy, ...] = ()
    offers: tuple[WorkerOffer, ...] = ()

    def for_story(self) -> CommitEpochSummary:
        intent = self.intent
        return CommitEpochSummary(
            number=intent.number,
            cause=intent.cause,
            shards=tuple(member.key for member in intent.shards),
            workers=tuple(member.key for member in intent.workers),
            dead=intent.dead,
            lost=count_blocks(intent.lost_blocks()),
            damage=intent.damage,
            rollback=intent.rollback,
        )


@dataclass(frozen=True)
class CommitEpochSummary:
    """``lost``: blocks that have to come back."""

    number: int
    cause: str
    shards: tuple[str, ...]
    workers: tuple[str, ...]
    dead: tuple[str, ...]
    lost: int
    damage: tuple[str, ...]
    rollback: bool


@dataclass(frozen=True)
class CollectReplicas:
    """Ask survivors which copies they keep of lost blocks, for epoch ``number``: ``ReplicasCollected``."""

    number: int
    survivors: tuple[Member, ...]
    former_owners: tuple[str, ...]
    blocks: BlocksByTable

    def for_story(self) -> CollectReplicasSummary:
        survivors = tuple(member.key for member in self.survivors)
        return CollectReplicasSummary(self.number, survivors, self.former_owners, count_blocks(self.blocks))


@dataclass(frozen=True)
class CollectReplicasSummary:
    number: int
    survivors: tuple[str, ...]
    former_owners: tuple[str, ...]
    blocks: int


@dataclass(frozen=True)
class CollectOffers:
    """Ask these workers what they hold of lost blocks, for epoch ``number``: ``OffersCollected``."""

    number: int
    workers: tuple[Member, ...]
    blocks: BlocksByTable

    def for_story(self) -> CollectOffersSummary:
        workers = tuple(member.key for member in self.workers)
        return CollectOffersSummary(self.number, workers, count_blocks(self.blocks))


@dataclass(frozen=True)
class CollectOffersSummary:
    number: int
    workers: tuple[str, ...]
    blocks: int


@dataclass(frozen=True)
class ReadClocks:
    """Ask shards for their open clocks, for epoch ``number``: ``ClocksRead``."""

    number: int
    shards: tuple[Member, ...]


@dataclass(frozen=True)
class ConfirmSuspects:
    """Ask these suspects once more: ``SuspectsAnswered``."""

    members: tuple[Member, ...]


@dataclass(frozen=True)
class MoveBlocks:
    """Freeze and copy these blocks in epoch ``number``, beside everything else: ``BlocksMoved``."""

    number: int
    transfers: tuple[Transfer, ...]

    def for_story(self) -> MoveBlocksSummary:
        return MoveBlocksSummary(self.number, tuple(transfer.for_story() for transfer in self.transfers))


@dataclass(frozen=True)
class MoveBlocksSummary:
    number: int
    transfers: tuple[TransferSummary, ...]


@dataclass(frozen=True)
class ReadTraffic:
    """Ask these shards of epoch ``number`` what they move, beside everything else: ``TrafficRead``."""

    number: int
    shards: tuple[Member, ...]


@dataclass(frozen=True)
class SaveShard:
    """Save a shard that goes, its most changed blocks first, beside everything else: ``ShardSaved``."""

    member: Member


PlannerAction = (
    CommitEpoch
    | CollectReplicas
    | CollectOffers
    | ReadClocks
    | ConfirmSuspects
    | MoveBlocks
    | ReadTraffic
    | SaveShard
)
