"""Placement arithmetic: an intent and a running checkpoint in, the next epoch out. Pure; nothing loops over blocks.

Blocks are global ids here (tables in job order), so that dealing and levelling do not care about tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from scar.blocks import Ids, positions_of
from scar.placement import NOBODY, BlockGroup, Epoch, Member, Owners, Role, Source, by_table, concatenated, global_ids, spread
from scar.tables import Job

GlobalIds = NDArray[np.int64]
Blocks = Mapping[str, Ids]

FENCED_KEPT = 4096  # incarnations remembered in an epoch, newest last


@dataclass(frozen=True)
class Origin:
    """Blocks of one table that share one saved state. ``object_key`` empty: x(0)."""

    ids: Ids
    object_key: str = ""
    clock: int = 0
    watermark: Mapping[str, int] = field(default_factory=dict)


class Saved(Protocol):
    """What a plan needs to know of a running checkpoint. ``manifest`` 0: nothing was saved yet."""

    @property
    def manifest(self) -> int: ...

    @property
    def clock(self) -> int: ...

    def origins(self, table: str, ids: Ids, /) -> Sequence[Origin]:
        """Where each of these blocks comes back from; every id occurs once."""
        ...


@dataclass(frozen=True)
class Copy:
    """Lost blocks of one table of which a living shard keeps a copy; they share one state."""

    holder: Member
    table: str
    ids: Ids
    clock: int
    watermark: Mapping[str, int]


class NothingSaved:
    """The running checkpoint before the first round: every block is at x(0)."""

    manifest = 0
    clock = 0

    def origins(self, _table: str, ids: Ids, /) -> Sequence[Origin]:
        return [Origin(ids)]


@dataclass(frozen=True)
class Transfer:
    """Blocks that go from one live shard to another."""

    donor: Member
    target: Member
    blocks: Blocks


@dataclass(frozen=True)
class Moved:
    """A transfer whose blocks lie frozen at the donor and copied at the target; only an epoch is missing."""

    transfer: Transfer
    clock: int
    watermark: Mapping[str, int]


@dataclass(frozen=True)
class Intent:
    """Everything about the next epoch except where lost blocks come back from, which the running checkpoint says."""

    number: int
    author: str
    job: Job
    previous: Epoch | None
    shards: tuple[Member, ...]
    workers: tuple[Member, ...]
    cause: str
    dead: tuple[str, ...] = ()  # member keys that leave by dying
    fenced: tuple[str, ...] = ()
    avoid: frozenset[str] = frozenset()  # shards that get no blocks while others could take them: they want to leave
    orphans: Mapping[str, GlobalIds] = field(default_factory=dict)  # former owner -> blocks that nobody owns
    moved: tuple[Moved, ...] = ()
    failure: int = 0
    seats: tuple[str, ...] = ()
    restart: int = 0  # first clock that counts after a rollback of which a worker is the reason

    @property
    def rollback(self) -> bool:
        return bool(self.shards) and (self.rewinds or (self.job.strategy.rollback and bool(self.lost())))

    @property
    def rewinds(self) -> bool:
        """A worker's death takes everything back."""
        workers = self.previous.workers if self.previous is not None else ()
        return self.job.worker_strategy.rollback and any(member.key in self.dead for member in workers)

    def lost(self) -> dict[str, GlobalIds]:
        """Former owner -> blocks that have to come back from the running checkpoint."""
        lost = dict(self.orphans)
        if self.previous is not None:
            owners = concatenated(self.job, self.previous.owners)
            for key in self.dead:
                index = self.previous.shard_index(key)
                blocks = np.flatnonzero(owners == index) if index >= 0 else np.empty(0, np.int64)
                if len(blocks):
                    lost[key] = blocks
        return lost


def rank_order(members: Sequence[Member]) -> tuple[Member, ...]:
    """By name, numbers as numbers (worker-2 before worker-10): the same order whoever joined first."""

    def parts(member: Member) -> tuple[str, int, str]:
        stem = member.name.rstrip("0123456789")
        return stem, int(member.name[len(stem) :] or -1), member.name

    return tuple(sorted(members, key=parts))


def seats(job: Job, epoch: Epoch, workers: Sequence[Member], left: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """Names in rank order of the next epoch's ``workers`` and of the dead whose share stays theirs; (): the workers alone.

    ``left``: keys of members that went by themselves; they leave nothing behind.
    """
    names = [member.name for member in workers]
    gone = {member.name for member in epoch.workers if member.key in left}
    absent = [name for name in epoch.ranks if name not in names and name not in gone]
    if not absent or not job.worker_strategy.seat:
        return ()
    return tuple(member.name for member in rank_order([*workers, *(Member(Role.WORKER, name, "") for name in absent)]))


def draft(intent: Intent, saved: Saved, copies: Sequence[Copy] = ()) -> Epoch:
    """The next epoch. ``saved`` and ``copies`` matter only when blocks were lost: the freshest of them wins, block by block."""
    if intent.previous is None:
        return _first(intent)
    owners, moved = _placed(intent, intent.previous)
    lost = intent.lost()
    restores = bool(intent.shards) and (bool(lost) or intent.rollback)
    if restores:
        found = sources(intent.job, lost, saved, intent.workers, copies)
        for holder, group in found:
            if holder is not None:
                owners[global_ids(intent.job, group.table, group.ids)] = intent.shards.index(holder)
        ids = _as_saved(intent.job, [group for holder, group in found if holder is None])
        owners[ids] = deal(len(ids), _takers(intent, intent.previous), intent.job.seed, intent.number)
        if intent.rollback:
            lost = owned_by_key(intent.job, intent.previous) | dict(intent.orphans)
            found = sources(intent.job, lost, saved)
        moved += [group for _, group in found]
    recovered = any(group.source == Source.OBJECT for group in moved)
    return Epoch(
        number=intent.number,
        author=intent.author,
        job=intent.job.name,
        shards=intent.shards,
        workers=intent.workers,
        owners=_by_table(intent.job, owners),
        moved=tuple(moved),
        fenced=intent.fenced[-FENCED_KEPT:],
        rollback=intent.rollback,
        manifest=saved.manifest if recovered else 0,
        clock=_clock(intent, intent.previous, saved if restores else None),
        cause=intent.cause,
        failure=intent.failure,
        seats=intent.seats,
        restart=max(intent.restart, intent.previous.restart),
    )


def _first(intent: Intent) -> Epoch:
    job = intent.job
    moved = [BlockGroup(t.name, np.arange(t.blocks, dtype=np.uint32), "", Source.INITIAL) for t in job.tables]
    owners = spread(job, len(intent.shards))
    return Epoch(1, intent.author, job.name, intent.shards, intent.workers, owners, tuple(moved), cause=intent.cause)


def _placed(intent: Intent, previous: Epoch) -> tuple[Owners, list[BlockGroup]]:
    """Owners by seats in the new shard list, after the live moves; blocks of shards that are gone have no owner."""
    seat = {member.key: index for index, member in enumerate(intent.shards)}
    reseat = np.full(NOBODY + 1, NOBODY, dtype=np.uint16)
    for index, member in enumerate(previous.shards):
        reseat[index] = seat.get(member.key, NOBODY)
    owners, groups = concatenated(intent.job, previous.owners), []
    fresh = reseat[owners]
    for done in intent.moved:
        transfer = done.transfer
        for table, ids in transfer.blocks.items():
            fresh[global_ids(intent.job, table, ids)] = seat[transfer.target.key]
            groups.append(
                BlockGroup(table, ids, transfer.donor.key, Source.DONOR, clock=done.clock, watermark=dict(done.watermark))
            )
    return fresh, groups


def _takers(intent: Intent, previous: Epoch) -> NDArray[np.int64]:
    """Seats that take lost blocks: survivors; without any, everybody."""
    survivors = [i for i, member in enumerate(intent.shards) if previous.shard_index(member.key) >= 0]
    staying = [i for i in survivors if intent.shards[i].key not in intent.avoid]
    return np.array(staying or survivors or range(len(intent.shards)), dtype=np.int64)


def _clock(intent: Intent, previous: Epoch, saved: Saved | None) -> int:
    """Clock at which a shard without one starts. Too low is safe (marks raise it), too high would close clocks early."""
    survivors = any(previous.shard_index(member.key) >= 0 for member in intent.shards)
    if saved is not None and (intent.rollback or not survivors):
        return saved.clock
    return max([previous.clock, *(done.clock for done in intent.moved)])


def _as_saved(job: Job, groups: Sequence[BlockGroup]) -> GlobalIds:
    """Lost blocks in the order in which they lie in the store."""
    return np.concatenate([np.empty(0, np.int64), *(global_ids(job, group.table, group.ids) for group in groups)])


def deal(count: int, takers: NDArray[np.int64], seed: int, number: int) -> Owners:
    """Seats for ``count`` lost blocks: evenly, the same for the same job seed and epoch number.

    Each taker gets one run of them, so that nobody reads past what others want. Which blocks were lost together was drawn by
    the job's seed already; who takes which run is drawn here.
    """
    order = random_by(seed, number).permutation(takers).astype(np.uint16)
    return order[np.arange(count) * len(order) // max(1, count)]


def random_by(seed: int, number: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=np.array([seed & 0xFFFFFFFFFFFFFFFF, number], dtype=np.uint64)))


Found = tuple[Member | None, BlockGroup]


def sources(
    job: Job, lost: Mapping[str, GlobalIds], saved: Saved, workers: Sequence[Member] = (), copies: Sequence[Copy] = ()
) -> list[Found]:
    """Where lost blocks come back from: one group per table, former owner and state, with the shard that has it in memory."""
    found: list[Found] = []
    for former, blocks in sorted(lost.items()):
        for table, ids in by_table(job, np.sort(blocks)).items():
            offers = [*_saved(table, ids, former, saved), *_copied(table, former, copies)]
            found += _freshest(ids, sorted(offers, key=lambda offer: _freshness(offer, workers)))
    return found


def _saved(table: str, ids: Ids, former: str, saved: Saved) -> list[Found]:
    return [
        (
            None,
            BlockGroup(
                table,
                origin.ids,
                former,
                Source.OBJECT if origin.object_key else Source.INITIAL,
                origin.object_key,
                origin.clock,
                dict(origin.watermark),
            ),
        )
        for origin in saved.origins(table, ids)
    ]


def _copied(table: str, former: str, copies: Sequence[Copy]) -> list[Found]:
    return [
        (copy.holder, BlockGroup(table, copy.ids, former, Source.REPLICA, "", copy.clock, dict(copy.watermark)))
        for copy in copies
        if copy.table == table
    ]


def _freshness(offer: Found, workers: Sequence[Member]) -> tuple[int, int, bool]:
    """States of one block follow each other, so the one that contains more pushes of those who still push is the newer one."""
    holder, group = offer
    return sum(group.watermark.get(worker.key, 0) for worker in workers), group.clock, holder is not None


def _freshest(ids: Ids, offers: Sequence[Found]) -> list[Found]:
    """Every block from the last offer that has it."""
    choice = np.full(len(ids), -1, np.int64)
    for index, (_, group) in enumerate(offers):
        at = positions_of(ids, group.ids)
        choice[at[at >= 0]] = index
    return [(offers[index][0], replace(offers[index][1], ids=ids[choice == index])) for index in np.unique(choice).tolist()]


def owned_by_key(job: Job, epoch: Epoch) -> dict[str, GlobalIds]:
    """Shard key -> its blocks; shards without blocks are left out."""
    owners = concatenated(job, epoch.owners)
    held = {member.key: np.flatnonzero(owners == index) for index, member in enumerate(epoch.shards)}
    return {key: blocks for key, blocks in held.items() if len(blocks)}


def orphaned(job: Job, before: Epoch, after: Epoch) -> dict[str, GlobalIds]:
    """Former owner -> blocks that lost their owner on the way from ``before`` to ``after`` without getting a new one."""
    nobody = concatenated(job, after.owners) == NOBODY
    held = {key: blocks[nobody[blocks]] for key, blocks in owned_by_key(job, before).items()}
    return {key: blocks for key, blocks in held.items() if len(blocks)}


def _by_table(job: Job, owners: Owners) -> dict[str, Owners]:
    return {t.name: owners[job.bases[t.name] : job.bases[t.name] + t.blocks].copy() for t in job.tables}
