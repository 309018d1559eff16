"""Pushes that were acknowledged and are not in a restored value, as ranges for each block. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scar.blocks import Ids


@dataclass(frozen=True, slots=True, eq=False)
class LostRanges:
    """For each of these blocks: acknowledged pushes (after, upto] that the restored value lacks."""

    table: str
    ids: Ids
    after: NDArray[np.int64]
    upto: NDArray[np.int64]

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """The different ones, ascending."""
        pairs = np.unique(np.stack([self.after, self.upto], axis=1), axis=0)
        return [(int(after), int(upto)) for after, upto in pairs]


def count_lost_pushes(losses: Iterable[LostRanges]) -> int:
    """Pushes of one worker of which at least one block was lost: the size of the union of all ranges."""
    total = 0
    end = 0
    for after, upto in sorted(pair for loss in losses for pair in loss.ranges):
        total += max(0, upto - max(after, end))
        end = max(end, upto)
    return total
