"""Which blocks a round saves. Pure; the coordinator decides, each shard finds out which of its blocks are
meant.

    decision = decide("random", 0.1, round_number, job)     # or, for "priority", above(threshold, count)
    mask = chosen(decision, job, "w", ids, distances)       # at one shard, one table

The answer of ``priority`` is a threshold of keys (:mod:`scar_runtime.checkpoint.top_keys`), not a list:
blocks are ordered by (larger distance, lower global id), a block that has not changed since it was saved is
never chosen, and a distance that is no number counts as infinite.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from scar.blocks import Ids
from scar.checkpoints import SELECTIONS
from scar.errors import ConfigError
from scar.placement import global_ids
from scar.tables import Job
from scar_runtime.checkpoint.top_keys import LOWEST, DistanceArray, block_keys

BY_DISTANCE = ("priority",)  # selections for which shards have to measure

_MIX = 0x9E3779B97F4A7C15  # odd constant that spreads consecutive rounds over all seeds
_MASK = (1 << 64) - 1


@dataclass(frozen=True)
class RoundSelection:
    """What `SaveRequest` says; the meaning of each number is written there."""

    selection: str
    threshold: int = 0
    first: int = 0
    count: int = 0
    seed: int = 0


def blocks_per_round(fraction: float, job: Job) -> int:
    """``ceil(fraction * job.blocks)``, at least 1."""
    return max(1, min(job.blocks, math.ceil(fraction * job.blocks - 1e-9)))


def above(threshold: int) -> RoundSelection:
    """``priority``: the blocks whose keys are at least this."""
    return RoundSelection("priority", threshold=threshold)


def decide(selection: str, fraction: float, round: int, job: Job) -> RoundSelection:
    """The blocks of this round, by a selection that looks at no distances: so many of
    :func:`blocks_per_round`, all of them for ``full``. ``round`` counts from 1.

    Raises :class:`ConfigError` for an unknown selection.
    """
    count = blocks_per_round(fraction, job)
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
    """Mask over ``ids``. ``distances`` are those that were measured for this round; only ``priority`` needs
    them.
    """
    if decision.selection == "priority":
        wanted: NDArray[np.bool_] = block_keys(job, table, ids, distances) >= max(LOWEST, decision.threshold)
        return wanted
    order = global_ids(job, table, ids)
    if decision.selection == "round":
        inside: NDArray[np.bool_] = (order - decision.first) % job.blocks < decision.count
        return inside
    if decision.selection == "random":
        return _draw_random(decision.seed, decision.count, job.blocks)[order]
    return np.ones(len(ids), dtype=np.bool_)


@lru_cache(maxsize=1)  # asked once per table of a round
def _draw_random(seed: int, count: int, blocks: int) -> NDArray[np.bool_]:
    """Mask over global ids: the same ``count`` blocks at every shard."""
    mask = np.zeros(blocks, dtype=np.bool_)
    mask[np.random.Generator(np.random.Philox(key=seed)).permutation(blocks)[:count]] = True
    return mask
