"""The r blocks with the largest distances, found without sending the distances: a search for the threshold.

Every changed block has a key: the bits of its distance (of a float32 that is not negative they order as it
does), then its global id inverted, so that of equal distances the lower id comes first. No two keys are
equal. Shards count their keys by the next digit (:func:`count_keys`); the coordinator adds the counts of all
shards, sees in which digit the r-th largest key is, and asks again within it (:class:`ThresholdSearch`),
until r falls between two digits. That takes at most five questions and mostly two or three, each answered by
at most 4,096 numbers, however many blocks there are. The set is that of a full sort, and of TPUT, which seed
002 suggests (``benchmarks.selection`` counts the bytes of all three).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scar.blocks import Ids
from scar.placement import global_ids
from scar.tables import MAX_BLOCKS, Job

DistanceArray = NDArray[np.float32]
KeyCounts = NDArray[np.int64]  # of keys, by digit

DIGITS = (11, 10, 10, 12, 12)  # bits of each: 31 of the distance, 24 of the id
ID_BITS = 24
KEY_BITS = sum(DIGITS)
LOWEST = 1 << ID_BITS  # of a block that has changed at all
assert MAX_BLOCKS <= 1 << ID_BITS


@dataclass(frozen=True)
class KeyRange:
    """All keys that begin with ``prefix``, which is the first ``depth`` digits."""

    depth: int = 0
    prefix: int = 0

    @property
    def size(self) -> int:
        """Digits that may follow."""
        return 1 << DIGITS[self.depth]

    @property
    def shift(self) -> int:
        """Bits behind the digit that follows."""
        return KEY_BITS - sum(DIGITS[: self.depth + 1])

    def first_key(self, digit: int) -> int:
        """The lowest key of the range in which this digit follows."""
        return (self.prefix << DIGITS[self.depth] | digit) << self.shift

    def narrow(self, digit: int) -> KeyRange:
        return KeyRange(self.depth + 1, self.prefix << DIGITS[self.depth] | digit)


@dataclass(frozen=True)
class ThresholdSearch:
    """What is sought: the ``count``-th largest key of those in ``within``."""

    count: int
    within: KeyRange = KeyRange()

    def advance(self, counts: KeyCounts) -> ThresholdSearch | int:
        """The search goes on, or the threshold is found: keys from there on are chosen.

        ``counts``: of all shards. Where they have fewer keys than are sought, as when nothing else has
        changed or a shard has left, all are chosen.
        """
        reached = np.cumsum(counts[::-1])
        place = int(np.searchsorted(reached, self.count))
        if place == len(counts):
            return max(LOWEST, self.within.first_key(0))
        digit = len(counts) - 1 - place
        if reached[place] == self.count:
            return max(LOWEST, self.within.first_key(digit))
        left = self.count - int(reached[place] - counts[digit])
        return ThresholdSearch(left, self.within.narrow(digit))


def block_keys(job: Job, table: str, ids: Ids, distances: DistanceArray) -> NDArray[np.uint64]:
    """uint64[len(ids)]; below :data:`LOWEST` for blocks that have not changed. A distance that is no number
    counts as infinite.
    """
    comparable = np.where(np.isnan(distances), np.float32(np.inf), distances).astype(np.float32, copy=False)
    keys = comparable.view(np.uint32).astype(np.uint64)
    keys <<= np.uint64(ID_BITS)
    keys += np.uint64((1 << ID_BITS) - 1) - global_ids(job, table, ids).astype(np.uint64)
    keys[comparable <= 0] = 0
    return keys


def count_keys(keys: NDArray[np.uint64], within: KeyRange) -> KeyCounts:
    """int64[within.size]: keys of changed blocks in this range, by the digit that follows."""
    digits = (keys >> np.uint64(within.shift)).astype(np.int64)
    first = within.prefix * within.size
    inside = (keys >= LOWEST) & (digits >= first) & (digits < first + within.size)
    return np.bincount(digits[inside] - first, minlength=within.size)
