"""What a story keeps of events and actions that carry arrays of blocks. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scar.placement import Epoch


@dataclass(frozen=True)
class EpochSummary:
    """``moved``: blocks that changed hands, or value."""

    number: int
    cause: str
    author: str
    shards: tuple[str, ...]
    workers: tuple[str, ...]
    moved: int
    failure: int


@dataclass(frozen=True)
class TransferSummary:
    donor: str
    target: str
    blocks: int


def summarise_epoch(epoch: Epoch) -> EpochSummary:
    return EpochSummary(
        number=epoch.number,
        cause=epoch.cause,
        author=epoch.author,
        shards=tuple(member.key for member in epoch.shards),
        workers=tuple(member.key for member in epoch.workers),
        moved=sum(len(group.ids) for group in epoch.moved),
        failure=epoch.failure,
    )


def count_blocks(blocks: Mapping[str, NDArray[np.integer]] | Sequence[NDArray[np.integer]]) -> int:
    """Of all tables together."""
    arrays = blocks.values() if isinstance(blocks, Mapping) else blocks
    return sum(len(ids) for ids in arrays)
