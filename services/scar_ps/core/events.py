"""What happens to a shard, as data: requests, results of what it asked its shell to do, and the time.

All of it is for :meth:`scar_ps.core.shard.Shard.handle`. ``changes`` says of an event whether requests that
wait may be served after it; ``for_story`` leaves out the blocks, which nobody wants to keep for a story.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from scar.blocks import Ids
from scar.event_log import EventSummary, describe_epoch
from scar.losses import LossPart, LossPoint
from scar.placement import Epoch
from scar.tables import Job
from scar_ps.core.block_data import BlockContents, BlockLoad
from scar_ps.core.block_memory import BlockMemory
from scar_ps.core.requests import PulledParts, Sender, StagedPush


class Event:
    """Something that happens to a shard."""

    __slots__ = ()
    changes: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class ShardTick(Event):
    """Time has passed. ``leased``: the shard may serve."""

    leased: bool


# --- workers and readers
# ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PushReceived(Event):
    """A push has arrived as a whole. Answered by :class:`scar_ps.core.pushes.PushApplied`."""

    push: StagedPush

    def for_story(self) -> PushReceived:
        return replace(self, push=replace(self.push, parts={}))


@dataclass(frozen=True, slots=True)
class AcknowledgementDue(Event):
    """This update is to be acknowledged, as soon as nothing speaks against it."""

    changes: ClassVar[bool] = False
    update: int


@dataclass(frozen=True, slots=True)
class PullRequested(Event):
    """Values of these blocks are wanted once clock ``min_clock`` is open.

    And once the loss of the clock before ``loss_clock`` (0: of none) cannot change any more. ``contents``:
    say what they contain. ``unsettled``: as they were put back, whatever workers owe them. ``exact``: as they
    are at exactly this open clock; -1: at any. ``clock``: of the worker, for which it pulls. Answered by
    :class:`scar_ps.core.pushes.PulledBlocks`.
    """

    changes: ClassVar[bool] = False
    sender: Sender
    epoch: int
    min_clock: int
    wanted: PulledParts
    loss_clock: int = 0
    contents: bool = False
    unsettled: bool = False
    exact: int = -1
    clock: int = 0

    def for_story(self) -> PullRequested:
        return replace(self, wanted=[(table, None) for table, _ in self.wanted])


@dataclass(frozen=True, slots=True)
class ClockFinished(Event):
    """A worker has finished ``finished`` clocks.

    ``part``: of the loss of the last of them. ``heard``: the loss for which the worker has ended. ``first``:
    first clock of this incarnation; None: as ``finished``. ``holds``: the worker can give back what it pulled
    in the last of them.
    Answered by :class:`scar_ps.core.clocks.ClockState`.
    """

    sender: Sender
    epoch: int
    finished: int
    part: LossPart | None = None
    heard: LossPoint | None = None
    first: int | None = None
    holds: bool = False


@dataclass(frozen=True, slots=True)
class WorkerSettled(Event):
    """A worker owes nothing more for ``epoch`` and those before.

    Answered by :class:`scar_ps.core.clocks.ClockState`.
    """

    sender: Sender
    epoch: int


# --- epochs and loads
# ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EpochReceived(Event):
    """A newer epoch, perhaps.

    ``complete``: those before it that matter have been handed in. ``memories``: by table,
    what stores are made in that get other blocks. Answered by :class:`scar_ps.core.epochs.AdoptedEpoch` or
    :class:`scar_ps.core.epochs.EpochsMissing`.
    """

    epoch: Epoch
    job: Job
    complete: bool = False
    memories: Mapping[str, BlockMemory] = field(default_factory=dict)

    def for_story(self) -> EventSummary:
        return EventSummary("EpochReceived", describe_epoch(self.epoch) | {"complete": self.complete})


@dataclass(frozen=True, slots=True)
class BlocksLoaded(Event):
    """A load is there."""

    load: BlockLoad
    contents: BlockContents

    def for_story(self) -> EventSummary:
        return EventSummary("BlocksLoaded", self.load.facts)


@dataclass(frozen=True, slots=True)
class LoadFailed(Event):
    """A load has failed. ``unreadable``: blocks whose saved copy is damaged or gone at a second look, too."""

    changes: ClassVar[bool] = False
    load: BlockLoad
    reason: str
    unreadable: Ids | None = None

    def for_story(self) -> EventSummary:
        unreadable = 0 if self.unreadable is None else len(self.unreadable)
        return EventSummary("LoadFailed", self.load.facts | {"reason": self.reason, "unreadable": unreadable})


@dataclass(frozen=True, slots=True)
class CopyReceived(Event):
    """A worker has sent blocks that an epoch has it send. ``flaw``: why they cannot be used; empty: nothing
    is wrong. Answered by what is wrong, in words.
    """

    sender: Sender
    epoch: int
    table: str
    ids: Ids
    clock: int
    contents: BlockContents
    flaw: str = ""

    def for_story(self) -> EventSummary:
        about = {"sender": self.sender.key, "epoch": self.epoch, "table": self.table, "clock": self.clock}
        return EventSummary("CopyReceived", about | {"blocks": len(self.ids), "flaw": self.flaw})


@dataclass(frozen=True, slots=True)
class JoinAnswered(Event):
    """The recovery coordinator has heard of this shard; ``reason``: why it has not. ``fenced``: it was
    declared dead before any epoch of this job had reached it.
    """

    changes: ClassVar[bool] = False
    reason: str = ""
    fenced: bool = False


@dataclass(frozen=True, slots=True)
class StoreChecked(Event):
    """The store was searched for a newer epoch; ``reason``: why it could not be."""

    changes: ClassVar[bool] = False
    reason: str = ""


# --- status
# ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StatusRequested(Event):
    """Answered by :class:`scar_ps.core.status.ShardSummary`, with losses of clocks from ``since_clock``, and
    with the traffic of so many of the busiest and of the quietest blocks.
    """

    changes: ClassVar[bool] = False
    since_clock: int = 0
    busiest: int = 0
