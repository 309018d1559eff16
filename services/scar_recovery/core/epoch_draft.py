"""Placement arithmetic: an intent and a running checkpoint in, the next epoch out.

Pure; nothing loops over blocks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from scar.placement import (
    NOBODY,
    BlockGroup,
    BlockSource,
    Epoch,
    Owners,
    concatenate_owners,
    global_ids,
    spread_blocks,
)
from scar.tables import Job
from scar_recovery.core.block_sources import (
    RecoverySource,
    ReplicaCopy,
    SavedState,
    WorkerOffer,
    find_sources,
)
from scar_recovery.core.epoch_intent import EpochIntent, GlobalIds, blocks_by_owner

FENCED_KEPT = 4096  # incarnations remembered in an epoch, newest last


def draft_epoch(
    intent: EpochIntent,
    saved: SavedState,
    copies: Sequence[ReplicaCopy] = (),
    offers: Sequence[WorkerOffer] = (),
) -> Epoch:
    """The next epoch.

    ``saved``, ``copies`` and ``offers`` matter only when blocks were lost: of each block the freshest wins.
    """
    previous = intent.previous
    if previous is None:
        return _first_epoch(intent)
    owners, moved = _apply_moves(intent, previous)
    reads = intent.reads_checkpoint
    if reads:
        found = find_sources(intent.job, intent.lost_blocks(), saved, intent.workers, copies, offers)
        # they stay with the owner that could not load them
        staying = find_sources(intent.job, intent.damaged, saved, intent.workers, offers=offers)
        placed = _place_lost_blocks(intent, previous, owners, saved, found)
        moved += [group for _, group in (placed if intent.rollback else [*placed, *staying])]
    recovered = any(group.source == BlockSource.OBJECT for group in moved)
    return Epoch(
        number=intent.number,
        author=intent.author,
        job=intent.job.name,
        shards=intent.shards,
        workers=intent.workers,
        owners=_split_by_table(intent.job, owners),
        moved=tuple(moved),
        fenced=intent.fenced[-FENCED_KEPT:],
        rollback=intent.rollback,
        manifest=saved.manifest if recovered else 0,
        clock=_starting_clock(intent, previous, saved if reads else None),
        cause=intent.cause,
        failure=intent.failure,
        seats=intent.seats,
        restart=max(intent.restart, previous.restart),
        finished=intent.finished,
        restoring=intent.restoring,
        resave=reads and saved.passed_over,
        awaits_workers=intent.awaits_workers,
    )


def _first_epoch(intent: EpochIntent) -> Epoch:
    job = intent.job
    moved = tuple(
        BlockGroup(table.name, np.arange(table.blocks, dtype=np.uint32), source=BlockSource.INITIAL)
        for table in job.tables
    )
    owners = spread_blocks(job, len(intent.shards))
    return Epoch(
        number=1,
        author=intent.author,
        job=job.name,
        shards=intent.shards,
        workers=intent.workers,
        owners=owners,
        moved=moved,
        cause=intent.cause,
        awaits_workers=intent.awaits_workers,
    )


def _apply_moves(intent: EpochIntent, previous: Epoch) -> tuple[Owners, list[BlockGroup]]:
    """Owners by seats in the new shard list, after the live moves, and what has moved.

    Blocks of shards that are gone have no owner.
    """
    seat = {member.key: index for index, member in enumerate(intent.shards)}
    new_seat = np.full(NOBODY + 1, NOBODY, dtype=np.uint16)
    for index, member in enumerate(previous.shards):
        new_seat[index] = seat.get(member.key, NOBODY)
    owners = new_seat[concatenate_owners(intent.job, previous.owners)]
    groups = []
    for done in intent.moved:
        donor = done.transfer.donor.key
        target = done.transfer.target.key
        for state in done.find_states():
            owners[global_ids(intent.job, state.table, state.ids)] = seat[target]
            groups.append(
                BlockGroup(
                    state.table,
                    state.ids,
                    former_owner=donor,
                    source=BlockSource.DONOR,
                    clock=state.clock,
                    watermark=state.watermark,
                )
            )
    return owners, groups


def _place_lost_blocks(
    intent: EpochIntent, previous: Epoch, owners: Owners, saved: SavedState, found: list[RecoverySource]
) -> list[RecoverySource]:
    """Gives lost blocks, which come from what was ``found``, their new ``owners``, in place; returns where
    everything comes back from.
    """
    for holder, group in found:
        if holder is not None:
            owners[global_ids(intent.job, group.table, group.ids)] = intent.shards.index(holder)
    ids = _in_stored_order(intent.job, [group for holder, group in found if holder is None])
    owners[ids] = deal_blocks(len(ids), _taking_seats(intent, previous), intent.job.seed, intent.number)
    if intent.rollback:
        everything = blocks_by_owner(intent.job, previous) | dict(intent.orphans)
        return find_sources(intent.job, everything, saved)
    return found


def _taking_seats(intent: EpochIntent, previous: Epoch) -> NDArray[np.int64]:
    """Seats that take lost blocks: survivors; without any, everybody."""
    survivors = [i for i, member in enumerate(intent.shards) if previous.shard_index(member.key) >= 0]
    staying = [i for i in survivors if intent.shards[i].key not in intent.avoid]
    return np.array(staying or survivors or range(len(intent.shards)), dtype=np.int64)


def _starting_clock(intent: EpochIntent, previous: Epoch, saved: SavedState | None) -> int:
    """Clock at which a shard without one starts.

    Too low is safe (marks raise it), too high would close clocks early. But where nobody is left who has
    served a block, workers go on from it, and rounds would wait until they are where they were.
    """
    serving = {
        index for owners in previous.owners.values() for index in np.flatnonzero(np.bincount(owners)).tolist()
    }
    survivors = any(previous.shard_index(member.key) in serving for member in intent.shards)
    if saved is not None and (intent.rollback or not survivors):
        return saved.clock
    return max([previous.clock, *(done.frozen.clock for done in intent.moved)])


def _in_stored_order(job: Job, groups: Sequence[BlockGroup]) -> GlobalIds:
    """Lost blocks in the order in which they lie in the store."""
    ids = [global_ids(job, group.table, group.ids) for group in groups]
    return np.concatenate([np.empty(0, np.int64), *ids])


def deal_blocks(count: int, takers: NDArray[np.int64], seed: int, number: int) -> Owners:
    """Seats for ``count`` lost blocks: evenly, the same for the same job seed and epoch number.

    Each taker gets one run of them, so that nobody reads past what others want. Which blocks were lost
    together was drawn by the job's seed already; who takes which run is drawn here.
    """
    order = seeded_generator(seed, number).permutation(takers).astype(np.uint16)
    return order[np.arange(count) * len(order) // max(1, count)]


def seeded_generator(seed: int, number: int) -> np.random.Generator:
    """Random numbers that depend only on the job's seed and the epoch's number."""
    key = np.array([seed & 0xFFFFFFFFFFFFFFFF, number], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key))


def _split_by_table(job: Job, owners: Owners) -> dict[str, Owners]:
    return {t.name: owners[job.bases[t.name] : job.bases[t.name] + t.blocks].copy() for t in job.tables}
