"""What a shard wants done, as data: answers to requests, and work for its shell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from scar.errors import ScarError
from scar.event_log import EventSummary
from scar_ps.core.block_data import BlockLoad


class ShardAction:
    """Something that the shell carries out."""

    __slots__ = ()


# --- answers to a request
# ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AnswerRequest(ShardAction):
    """The request is served."""

    result: Any


@dataclass(frozen=True, slots=True)
class RefuseRequest(ShardAction):
    """The request is refused; nothing was changed."""

    error: ScarError


@dataclass(frozen=True, slots=True)
class ParkRequest(ShardAction):
    """The request waits for a change; nothing was changed. ``reason``: for which one, in words."""

    reason: str


@dataclass(frozen=True, slots=True)
class RetryRequests(ShardAction):
    """Something has changed: hand in these requests again, in this order."""

    requests: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CrashProcess(ShardAction):
    """An unexpected error in the middle of a change: nobody may trust the values any more."""

    error: Exception


# --- work
# ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StartLoad(ShardAction):
    """Read or initialise these blocks; answer with BlocksLoaded or LoadFailed."""

    load: BlockLoad

    def for_story(self) -> EventSummary:
        return EventSummary("StartLoad", self.load.facts)


@dataclass(frozen=True, slots=True)
class AnnounceEpoch(ShardAction):
    """This shard is in this epoch, with so many blocks of which so many are loading; say so in heartbeats.
    ``cause`` is empty when it was in it before.
    """

    number: int
    cause: str = ""
    blocks: int = 0
    loading: int = 0


@dataclass(frozen=True, slots=True)
class EndService(ShardAction):
    """This shard may never serve again."""

    reason: str


@dataclass(frozen=True, slots=True)
class JoinCluster(ShardAction):
    """Tell the recovery coordinator of this shard; answer with JoinAnswered."""


@dataclass(frozen=True, slots=True)
class CheckStore(ShardAction):
    """Search the store for a newer epoch and hand it in; answer with StoreChecked."""


@dataclass(frozen=True, slots=True)
class ReportAbandonedRound(ShardAction):
    """A round on which training waited was given up after so many seconds."""

    number: int
    seconds: float
