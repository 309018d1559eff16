"""Which blocks go from one live shard to another: to one that came, from one that leaves.

Pure; nothing loops over blocks.
"""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import NDArray

from scar.placement import NOBODY, Epoch, Owners, by_table, concatenate_owners, spread_blocks
from scar.tables import Job
from scar_recovery.core.epoch_draft import seeded_generator
from scar_recovery.core.epoch_intent import GlobalIds, Transfer

TOLERANCE = 0.05  # share of the mean by which block counts may differ after a rebalance
# a slice may carry so much of the model: whatever it carries, each shard makes a new store of all it has
SLICE_SHARE = 1 / 8


def block_bytes(job: Job) -> NDArray[np.int64]:
    """Bytes of values and slots of every block, by global id."""
    return np.concatenate([table.block_bytes for table in job.tables])


def most_bytes(job: Job, slice_bytes: int) -> int:
    """Values and slots that move at once."""
    return max(slice_bytes, int(SLICE_SHARE * block_bytes(job).sum()))


def plan_transfers(
    job: Job, epoch: Epoch, leaving: frozenset[str], level: bool, slice_bytes: int
) -> tuple[Transfer, ...]:
    """The next slice of moves; () when there is nothing to do.

    Shards that leave give everything; the others level their counts when ``level`` is set. All transfers
    together carry at most ``slice_bytes``, since training waits for them, or :data:`SLICE_SHARE` of the
    model, and each at least one block; where somebody leaves, who may have little time, each carries so much.
    """
    owners = concatenate_owners(job, epoch.owners)
    counts = np.bincount(owners[owners != NOBODY], minlength=len(epoch.shards))[: len(epoch.shards)]
    stays = np.array([member.key not in leaving for member in epoch.shards], dtype=bool)
    surplus = _surplus_counts(counts, stays, level)
    if not surplus.any():
        return ()
    sizes = block_bytes(job)
    transfers: list[Transfer] = []
    shares = _divide_surplus(job, epoch, owners, surplus)
    most = most_bytes(job, slice_bytes)
    most = most if leaving else most // len(shares)
    for (donor, target), blocks in shares.items():
        fitting = max(1, int(np.searchsorted(np.cumsum(sizes[blocks]), most, side="right")))
        slice_blocks = by_table(job, np.sort(blocks[:fitting]))
        transfers.append(Transfer(epoch.shards[donor], epoch.shards[target], slice_blocks))
    return tuple(transfers)


def _divide_surplus(
    job: Job, epoch: Epoch, owners: Owners, surplus: NDArray[np.int64]
) -> dict[tuple[int, int], GlobalIds]:
    """(donor's seat, target's seat) -> blocks. First those that the target would have in a first epoch of
    these shards.

    So a shard that comes back gets its old blocks again. They were saved together and can be read together;
    after many failures blocks at random places would have to be picked out of everybody's objects.
    """
    home = concatenate_owners(job, spread_blocks(job, len(epoch.shards)))
    draw = seeded_generator(job.seed, epoch.number)
    own = {
        int(donor): draw.permutation(np.flatnonzero(owners == donor)) for donor in np.flatnonzero(surplus > 0)
    }
    left = surplus.copy()
    targets = np.flatnonzero(surplus < 0).tolist()
    shares: dict[tuple[int, int], GlobalIds] = {}
    for anywhere in (False, True):
        for donor, target in product(own, targets):
            wanted = (home[own[donor]] == target) | anywhere
            taken = wanted & (np.cumsum(wanted) <= min(left[donor], -left[target]))
            if taken.any():
                share, own[donor] = own[donor][taken], own[donor][~taken]
                left[donor] -= len(share)
                left[target] += len(share)
                shares[donor, target] = np.append(shares.get((donor, target), share[:0]), share)
    return shares


def _surplus_counts(counts: NDArray[np.int64], stays: NDArray[np.bool_], level: bool) -> NDArray[np.int64]:
    """Blocks that each shard has too many (positive) or too few (negative); zeros when it is good enough."""
    staying = int(stays.sum())
    if not staying:
        return np.zeros_like(counts)
    goal = np.zeros_like(counts)
    if level:
        mean, rest = divmod(int(counts.sum()), staying)
        richest = np.flatnonzero(stays)[np.argsort(-counts[stays], kind="stable")]
        goal[stays] = mean
        goal[richest[:rest]] += 1
        spread_now = int(counts[stays].max() - counts[stays].min())
        if spread_now <= max(1.0, TOLERANCE * mean) and not counts[~stays].any():
            return np.zeros_like(counts)
        return counts - goal
    leaving = np.where(stays, 0, counts)
    share, rest = divmod(int(leaving.sum()), staying)
    takes = np.where(stays, share, 0)
    takes[np.flatnonzero(stays)[:rest]] += 1
    return leaving - takes
