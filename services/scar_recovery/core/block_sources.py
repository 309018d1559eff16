"""Where lost blocks come back from: the running checkpoint, copies of shards, pulls of workers. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from scar.blocks import BlockState, Ids, positions_of
from scar.placement import BlockGroup, BlockSource, Member, by_table
from scar.tables import Job
from scar_recovery.core.epoch_intent import GlobalIds


@dataclass(frozen=True)
class SavedGroup:
    """Blocks that share one saved state. ``object_key`` empty: x(0)."""

    state: BlockState
    object_key: str = ""


class SavedState(Protocol):
    """What a draft needs to know of a running checkpoint. ``manifest`` 0: nothing was saved yet.

    ``passed_over``: a newer manifest could not be read, so shards believe blocks to be saved that are not.
    """

    @property
    def manifest(self) -> int: ...

    @property
    def clock(self) -> int: ...

    @property
    def passed_over(self) -> bool: ...

    def saved_groups(self, table: str, ids: Ids, /) -> Sequence[SavedGroup]:
        """Where each of these blocks comes back from; every id occurs once."""
        ...


@dataclass(frozen=True)
class ReplicaCopy:
    """Lost blocks of which a living shard keeps a copy."""

    holder: Member
    state: BlockState


@dataclass(frozen=True)
class WorkerOffer:
    """Lost blocks that a living worker holds as it pulled them."""

    worker: Member
    state: BlockState


class NothingSaved:
    """The running checkpoint before the first round: every block is at x(0)."""

    manifest = 0
    clock = 0
    passed_over = False

    def saved_groups(self, table: str, ids: Ids, /) -> Sequence[SavedGroup]:
        return [SavedGroup(BlockState(table, ids))]


# the shard that has these blocks in memory (None: they are in the store), and the blocks
RecoverySource = tuple[Member | None, BlockGroup]


def find_sources(
    job: Job,
    lost: Mapping[str, GlobalIds],
    saved: SavedState,
    workers: Sequence[Member] = (),
    copies: Sequence[ReplicaCopy] = (),
    offers: Sequence[WorkerOffer] = (),
) -> list[RecoverySource]:
    """Where lost blocks come back from: one group per table, former owner and state."""
    found: list[RecoverySource] = []
    for former, blocks in sorted(lost.items()):
        for table, ids in by_table(job, np.sort(blocks, kind="stable")).items():
            states = [*_saved_offers(table, ids, former, saved), *_replica_offers(table, former, copies)]
            states += _worker_offers(table, former, offers)
            states.sort(key=lambda state: _freshness(state, workers))
            found += _freshest_sources(ids, states)
    return found


def _saved_offers(table: str, ids: Ids, former: str, saved: SavedState) -> list[RecoverySource]:
    offers: list[RecoverySource] = []
    for group in saved.saved_groups(table, ids):
        source = BlockSource.OBJECT if group.object_key else BlockSource.INITIAL
        offers.append((None, _as_group(group.state, former, source, group.object_key)))
    return offers


def _replica_offers(table: str, former: str, copies: Sequence[ReplicaCopy]) -> list[RecoverySource]:
    return [
        (copy.holder, _as_group(copy.state, former, BlockSource.REPLICA))
        for copy in copies
        if copy.state.table == table
    ]


def _worker_offers(table: str, former: str, offers: Sequence[WorkerOffer]) -> list[RecoverySource]:
    """Workers that hold the same state send a part each."""
    same: dict[str, list[WorkerOffer]] = {}
    for offer in offers:
        if offer.state.table == table:
            state = offer.state
            same.setdefault(repr((state.clock, sorted(state.watermark.items()))), []).append(offer)
    found: list[RecoverySource] = []
    for group in same.values():
        for index, offer in enumerate(group):
            whole = _as_group(offer.state, former, BlockSource.WORKER)
            whole = replace(whole, sender=offer.worker.key)
            parts = np.array_split(offer.state.ids, len(group))
            found += [(None, whole), (None, replace(whole, ids=parts[index]))]
    return found


def _as_group(state: BlockState, former: str, source: BlockSource, object_key: str = "") -> BlockGroup:
    return BlockGroup(
        state.table,
        state.ids,
        former_owner=former,
        source=source,
        object_key=object_key,
        clock=state.clock,
        watermark=dict(state.watermark),
    )


def _freshness(offer: RecoverySource, workers: Sequence[Member]) -> tuple[int, int, bool, int]:
    """States of one block follow each other: the one with more pushes of present workers is the newer.

    Of equals the one in a shard's memory, then a worker's; of workers' the smaller part, so that each sends
    some.
    """
    holder, group = offer
    pushes = sum(group.watermark.get(worker.key, 0) for worker in workers)
    in_memory = holder is not None or group.source is BlockSource.WORKER
    return pushes, group.clock, in_memory, -len(group.ids)


def _freshest_sources(ids: Ids, offers: Sequence[RecoverySource]) -> list[RecoverySource]:
    """Every block from the last offer that has it."""
    choice = np.full(len(ids), -1, np.int64)
    for index, (_, group) in enumerate(offers):
        positions = positions_of(ids, group.ids)
        choice[positions[positions >= 0]] = index
    chosen: list[RecoverySource] = []
    for index in np.flatnonzero(np.bincount(choice, minlength=len(offers))).tolist():
        holder, group = offers[index]
        chosen.append((holder, replace(group, ids=ids[choice == index])))
    return chosen
