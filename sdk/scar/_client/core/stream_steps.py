"""What a worker sends next to one life of one shard. Only data."""

from __future__ import annotations

from dataclasses import dataclass

from scar._client.core.comparisons import RecoveredBlocks
from scar._client.core.pushes import ShardPush
from scar.losses import LossPart, LossPoint


@dataclass(frozen=True, slots=True)
class SendPush:
    """``dense``: tables of which the push has every block that the shard owns: their ids need not travel."""

    push: ShardPush
    epoch: int
    dense: frozenset[str]


@dataclass(frozen=True, slots=True)
class CompareBlocks:
    """Pull restored values and measure how far they are from those that were pulled before."""

    blocks: RecoveredBlocks
    epoch: int


@dataclass(frozen=True, slots=True)
class SettleEpoch:
    """Tell the shard that it has all that was pushed before this epoch."""

    epoch: int


@dataclass(frozen=True, slots=True)
class SendMark:
    """Tell the shard how many clocks are ``finished``; ``mark`` is what it answers for. ``holds``: what was
    pulled in the last of them can be given back."""

    epoch: int
    mark: int
    finished: int
    part: LossPart | None
    final_loss: LossPoint | None
    holds: bool = False


NextStep = SendPush | CompareBlocks | SettleEpoch | SendMark
