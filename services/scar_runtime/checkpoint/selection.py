"""Which blocks a round saves. Pure; the coordinator decides, each shard finds out which of its blocks are
meant.

    decision = decide("priority", 0.1, round_number, job, [("w", ids, distances), ...])   # from all shards
    mask = chosen(decision, job, "w", ids, distances)                                     # at one shard, one
    table

The answer of ``priority`` is a threshold and a tie rule, not a list: blocks are ordered by (larger distance,
lower global id), a block that has not changed since it was saved is never chosen, and a distance that is no
number counts as infinite.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from scar.blocks import Ids
from scar.checkpoints import SELECTIONS
from scar.errors import ConfigError
from scar.placement import global_ids
from scar.tables import Job

DistanceArray = NDArray[np.float32]
DistanceReport = tuple[str, Ids, DistanceArray]  # table, blocks of one shard, their distances

BY_DISTANCE = ("priority",)  # selections for which shards have to measure

_MIX = 0x9E3779B97F4A7C15  # odd constant that spreads consecutive rounds over all seeds
_MASK = (1 << 64) - 1


@dataclass(frozen=True)
class RoundSelection:
    """What `SaveRequest` says; the meaning of each number is written there."""

    selection: str
    threshold: float = math.inf
    tie_before: int = 0
    first: int = 0
    count: int = 0
    seed: int = 0


def decide(
    selection: str, fraction: float, round: int, job: Job, distances: Sequence[DistanceReport]
) -> RoundSelection:
    """The blocks of this round: ``ceil(fraction * job.blocks)``, all of them for ``full``. ``round`` counts
    from 1.

    Only ``priority`` looks at the distances. Raises :class:`ConfigError` for an unknown selection.
    """
    count = max(1, min(job.blocks, math.ceil(fraction * job.blocks - 1e-9)))
    if selection == "priority":
        return _largest_distances(count, job, distances)
    if selection == "round":
        return RoundSelection(selection, first=(round - 1) * count % job.blocks, count=count)
    if selection == "random":
        return RoundSelection(selection, count=count, seed=(job.seed ^ round * _MIX) & _MASK)
    if selection == "full":
        return RoundSelection(selection, count=job.blocks)
    raise ConfigError(f"selection {selection!r} is unknown", f"Use one of {', '.join(SELECTIONS)}")


def chosen(
    decision: RoundSelection, job: Job, table: str, ids: Ids, distances: DistanceArray
) -> NDArray[np.bool_]:
    """Mask over ``ids``. ``distances`` are those that were reported for this round; only ``priority``
    needs them.
    """
    order = global_ids(job, table, ids)
    if decision.selection == "priority":
        comparable = _comparable_distances(distances)
        level = np.float32(decision.threshold)
        wanted: NDArray[np.bool_] = (comparable > level) | (
            (comparable == level) & (order < decision.tie_before)
        )
        return wanted
    if decision.selection == "round":
        inside: NDArray[np.bool_] = (order - decision.first) % job.blocks < decision.count
        return inside
    if decision.selection == "random":
        return _draw_random(decision.seed, decision.count, job.blocks)[order]
    return np.ones(len(ids), dtype=np.bool_)


def _largest_distances(count: int, job: Job, distances: Sequence[DistanceReport]) -> RoundSelection:
    """Threshold at the ``count``-th largest distance; of the blocks exactly there, those with the lowest
    global ids.
    """
    order = np.concatenate(
        [np.empty(0, np.int64), *(global_ids(job, table, ids) for table, ids, _ in distances)]
    )
    far = np.concatenate(
        [np.empty(0, np.float32), *(_comparable_distances(values) for _, _, values in distances)]
    )
    changed = far > 0
    order, far = order[changed], far[changed]
    count = min(count, len(far))
    if count == 0:
        return RoundSelection("priority")
    level = np.partition(far, len(far) - count)[len(far) - count]
    ties = count - int(np.count_nonzero(far > level))
    last = np.partition(order[far == level], ties - 1)[ties - 1]
    return RoundSelection("priority", threshold=float(level), tie_before=int(last) + 1, count=count)


def _comparable_distances(distances: DistanceArray) -> DistanceArray:
    return np.where(np.isnan(distances), np.float32(np.inf), distances).astype(np.float32, copy=False)


@lru_cache(maxsize=1)  # asked once per table of a round
def _draw_random(seed: int, count: int, blocks: int) -> NDArray[np.bool_]:
    """Mask over global ids: the same ``count`` blocks at every shard."""
    mask = np.zeros(blocks, dtype=np.bool_)
    mask[np.random.Generator(np.random.Philox(key=seed)).permutation(blocks)[:count]] = True
    return mask
