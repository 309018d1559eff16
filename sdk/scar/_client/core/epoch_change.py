"""An epoch that a worker follows, and what follows from it for its streams. Only data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scar._client.core.comparisons import RecoveredBlocks
from scar.event_log import EventSummary, describe_epoch
from scar.lost_ranges import LostRanges
from scar.placement import Epoch, Member


@dataclass(frozen=True, slots=True)
class EpochFollowed:
    """The worker goes on in this epoch."""

    epoch: Epoch

    def for_story(self) -> EventSummary:
        return EventSummary("EpochFollowed", describe_epoch(self.epoch))


@dataclass(frozen=True, slots=True)
class EpochChange:
    """What follows from an epoch. ``opened``, ``closed``: streams, by shard and by key of the shard.

    ``losses``: acknowledged and not in the restored values. ``resent``: pushes that go to a new owner.
    ``comparisons``: how many were queued; ``abandoned``: those whose blocks have moved again.
    """

    opened: Sequence[Member]
    closed: Sequence[str]
    losses: Sequence[LostRanges] = ()
    resent: int = 0
    comparisons: int = 0
    abandoned: Sequence[RecoveredBlocks] = ()

    def for_story(self) -> EventSummary:
        fields = {
            "opened": [shard.name for shard in self.opened],
            "closed": self.closed,
            "losses": len(self.losses),
            "resent": self.resent,
            "comparisons": self.comparisons,
            "abandoned": len(self.abandoned),
        }
        return EventSummary("EpochChange", fields)
