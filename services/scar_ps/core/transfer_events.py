"""Events of blocks that leave or come: by migration, checkpoint rounds and replication."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from scar_ps.core.block_data import CopiedBlocks, IncomingBlocks
from scar_ps.core.block_snapshot import BlockSnapshot, StallTimer
from scar_ps.core.checkpoint_round import Candidates
from scar_ps.core.events import Event
from scar_ps.core.replica_store import ReplicationBatch, WantedReplicas
from scar_ps.core.replication_chain import OutgoingBatch
from scar_ps.core.requests import WantedBlocks
from scar_runtime.checkpoint.manifest import ObjectRef

# --- migration
# ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FreezeRequested(Event):
    """These blocks are to stop until the next epoch.

    Answered by :class:`scar_ps.core.migrations.FrozenState`.
    """

    epoch: int
    wanted: WantedBlocks

    def for_story(self) -> FreezeRequested:
        return replace(self, wanted=[(table, None) for table, _ in self.wanted])


@dataclass(frozen=True, slots=True)
class FrozenRequested(Event):
    """The new owner wants to copy frozen blocks.

    Answered by :class:`scar_ps.core.migrations.FrozenBlocks`.
    """

    changes: ClassVar[bool] = False
    epoch: int
    wanted: WantedBlocks

    def for_story(self) -> FrozenRequested:
        return replace(self, wanted=[(table, None) for table, _ in self.wanted])


@dataclass(frozen=True, slots=True)
class BlocksReceived(Event):
    """Blocks that a donor has frozen for this shard have arrived."""

    incoming: Sequence[IncomingBlocks]

    def for_story(self) -> BlocksReceived:
        return replace(self, incoming=())


# --- checkpoint rounds
# ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RoundStarted(Event):
    """A round begins once clock ``min_clock`` is open. ``by_distance``: of what has changed alone.

    Answered by :class:`scar_ps.core.rounds.StartedRound`.
    """

    epoch: int
    number: int
    min_clock: int = 0
    author: str = ""
    by_distance: bool = False


@dataclass(frozen=True, slots=True)
class CandidatesMeasured(Event):
    """The candidates of a round have their distances now."""

    epoch: int
    candidates: list[Candidates]

    def for_story(self) -> CandidatesMeasured:
        return replace(self, candidates=[])


@dataclass(frozen=True, slots=True)
class CandidatesRequested(Event):
    """What was measured, to choose from. Answered by a list of candidates."""

    changes: ClassVar[bool] = False
    epoch: int
    number: int


@dataclass(frozen=True, slots=True)
class BlocksChosen(Event):
    """The coordinator has chosen what is saved. Answered by the list of
    :class:`scar_ps.core.block_data.CopiedBlocks`, whose contents come by :class:`CopyContinued`.

    ``chosen``: made for these blocks, and not begun. ``baselines``: keys of the shard's objects that are
    listed, so that what has changed since may be saved alone; None: whole blocks are wanted.
    """

    epoch: int
    number: int
    chosen: Sequence[BlockSnapshot]
    baselines: frozenset[str] | None = None
    timer: StallTimer = field(default_factory=StallTimer)

    def for_story(self) -> BlocksChosen:
        return replace(self, chosen=())


@dataclass(frozen=True, slots=True)
class CopyContinued(Event):
    """The piece that was given last is copied. Answered by the next :class:`PieceCopy`, or None when all
    contents are there.
    """

    changes: ClassVar[bool] = False
    copied: Sequence[CopiedBlocks]

    def for_story(self) -> CopyContinued:
        return replace(self, copied=())


@dataclass(frozen=True, slots=True)
class ObjectUploaded(Event):
    """The object with this copy is durable; None: the copy is empty."""

    epoch: int
    copied: Sequence[CopiedBlocks]
    object: ObjectRef | None = None

    def for_story(self) -> ObjectUploaded:
        return replace(self, copied=())


@dataclass(frozen=True, slots=True)
class UploadFailed(Event):
    """This copy is not in the store."""

    copied: Sequence[CopiedBlocks]

    def for_story(self) -> UploadFailed:
        return replace(self, copied=())


@dataclass(frozen=True, slots=True)
class RoundFinished(Event):
    """The coordinator's word on a round. Answered by True when it was committed with this shard's object."""

    number: int
    committed: bool
    author: str = ""
    object_key: str = ""


@dataclass(frozen=True, slots=True)
class InstallContinued(Event):
    """There is time to make a little more of a committed copy the saved values. Answered by False when all of
    it is done.
    """

    changes: ClassVar[bool] = False


# --- replication
# ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OutgoingRequested(Event):
    """The next replica can be sent something.

    Answered by an :class:`scar_ps.core.replication_chain.OutgoingBatch`.
    """


@dataclass(frozen=True, slots=True)
class BatchArrived(Event):
    """The next replica has this batch."""

    outgoing: OutgoingBatch
    batch: ReplicationBatch

    def for_story(self) -> BatchArrived:
        return replace(
            self, outgoing=replace(self.outgoing, batches=()), batch=replace(self.batch, copies=())
        )


@dataclass(frozen=True, slots=True)
class BatchFailed(Event):
    """The next replica refused this batch, or cannot be reached. ``gap``: it lacks what came before."""

    batch: ReplicationBatch
    gap: bool
    reason: str = ""

    def for_story(self) -> BatchFailed:
        return replace(self, batch=replace(self.batch, copies=()))


@dataclass(frozen=True, slots=True)
class OutgoingCompleted(Event):
    """All batches have arrived.

    ``released``: everybody knows that other copies of this shard's blocks are of no use any more.
    """

    outgoing: OutgoingBatch
    released: bool

    def for_story(self) -> OutgoingCompleted:
        return replace(self, outgoing=replace(self.outgoing, batches=()))


@dataclass(frozen=True, slots=True)
class BatchReceived(Event):
    """A batch for this shard, as the next replica of another."""

    batch: ReplicationBatch

    def for_story(self) -> BatchReceived:
        return replace(self, batch=replace(self.batch, copies=()))


@dataclass(frozen=True, slots=True)
class ReplicasClaimed(Event):
    """Owners are being declared dead: which of these blocks are kept here?

    Answered by a list of :class:`scar.blocks.BlockState`.
    """

    epoch: int
    dead: Sequence[str]
    wanted: WantedReplicas

    def for_story(self) -> ReplicasClaimed:
        return replace(self, wanted=())


@dataclass(frozen=True, slots=True)
class ReplicasReleased(Event):
    """The chain of this owner is whole: copies of its blocks that are no part of it can go."""

    epoch: int
    owner: str
