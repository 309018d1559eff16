"""What is known about the next epoch before it is drafted: an :class:`EpochIntent`. Pure.

Blocks are global ids here (tables in job order), so that nothing depends on tables.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scar.blocks import BlockState, Ids
from scar.placement import NOBODY, Epoch, Member, Role, concatenate_owners
from scar.tables import Job
from scar_recovery.core.story_summaries import TransferSummary, count_blocks

GlobalIds = NDArray[np.int64]
BlocksByTable = Mapping[str, Ids]


@dataclass(frozen=True)
class Transfer:
    """Blocks that go from one live shard to another."""

    donor: Member
    target: Member
    blocks: BlocksByTable

    def for_story(self) -> TransferSummary:
        return TransferSummary(self.donor.key, self.target.key, count_blocks(self.blocks))


class FreezeAnswer(NamedTuple):
    """What frozen blocks contain, and the donor's open clock. ``ahead``: those that contain more than the
    ``watermark``, as they were restored.
    """

    clock: int
    watermark: Mapping[str, int]
    ahead: Sequence[BlockState] = ()


@dataclass(frozen=True)
class FrozenTransfer:
    """A transfer whose blocks lie frozen at the donor and copied at the target; only an epoch is missing."""

    transfer: Transfer
    frozen: FreezeAnswer

    def find_states(self) -> Iterator[BlockState]:
        """All blocks, with what they contain."""
        for table, ids in self.transfer.blocks.items():
            left = ids
            for state in self.frozen.ahead:
                mine = np.intersect1d(left, state.ids) if state.table == table else left[:0]
                if len(mine):
                    yield BlockState(table, mine, self.frozen.clock, state.watermark)
                    left = np.setdiff1d(left, mine)
            if len(left):
                yield BlockState(table, left, self.frozen.clock, dict(self.frozen.watermark))


@dataclass(frozen=True)
class RollbackRequest:
    """A worker wants everything to go back behind a ``clock``, whose loss is the reason.

    ``manifest``: what it goes back to; 0: x(0). ``reason``: in words.
    """

    clock: int
    manifest: int
    reason: str


def rewinds_workers(job: Job, before: Epoch, shards: Iterable[Member], dead: Collection[str]) -> bool:
    """Whether a worker's death takes everything back. ``shards``: after it; ``dead``: member keys.

    Where no shard stays there is nothing to take back: what comes comes from the checkpoint anyway.
    """
    lost_worker = any(member.key in dead for member in before.workers)
    served = {member.key for member in before.shards}
    return job.worker_strategy.rollback and lost_worker and any(one.key in served for one in shards)


@dataclass(frozen=True)
class EpochIntent:
    """Everything about the next epoch except where lost blocks come back from."""

    number: int
    author: str
    job: Job
    previous: Epoch | None
    shards: tuple[Member, ...]
    workers: tuple[Member, ...]
    cause: str
    dead: tuple[str, ...] = ()  # member keys that leave by dying
    fenced: tuple[str, ...] = ()
    # shards that get no blocks while others could take them: they want to leave
    avoid: frozenset[str] = frozenset()
    orphans: Mapping[str, GlobalIds] = field(default_factory=dict)  # former owner -> blocks that nobody owns
    moved: tuple[FrozenTransfer, ...] = ()
    failure: int = 0
    seats: tuple[str, ...] = ()
    finished: int = 0  # epoch with which the last workers left, their work done
    # "" -> blocks that their owners cannot load
    damaged: Mapping[str, GlobalIds] = field(default_factory=dict)
    damage: tuple[str, ...] = ()  # what cannot be read, in words
    failed_senders: frozenset[str] = frozenset()  # keys of workers that did not send what they had to
    restoring: tuple[int, ...] = ()  # manifests from which blocks may still be loaded
    awaits_workers: bool = False  # those that are there wait for the rest of the job's
    restart: int = 0  # first clock that counts after a rollback of which a worker is the reason
    asked: RollbackRequest | None = None  # a rollback that a worker has asked for

    @property
    def reads_checkpoint(self) -> bool:
        return self.restores_blocks or self.rollback

    @property
    def rollback(self) -> bool:
        return self.restarts_clocks or (self.job.strategy.rollback and self.restores_blocks)

    @property
    def restarts_clocks(self) -> bool:
        """Everything goes back because of a worker, so all workers go on with the same clock."""
        return self.rewinds_workers or self.asked is not None

    @property
    def restores_blocks(self) -> bool:
        """Blocks have to come back from the running checkpoint."""
        return bool(self.shards) and bool(self.lost_blocks() or self.damaged)

    @property
    def rewinds_workers(self) -> bool:
        """A worker's death takes everything back."""
        before = self.previous
        return before is not None and rewinds_workers(self.job, before, self.shards, self.dead)

    def lost_blocks(self) -> dict[str, GlobalIds]:
        """Former owner -> blocks that have to come back from the running checkpoint."""
        lost = dict(self.orphans)
        if self.previous is not None:
            owners = concatenate_owners(self.job, self.previous.owners)
            for key in self.dead:
                index = self.previous.shard_index(key)
                blocks = np.flatnonzero(owners == index) if index >= 0 else np.empty(0, np.int64)
                if len(blocks):
                    lost[key] = blocks
        return lost


def rank_order(members: Sequence[Member]) -> tuple[Member, ...]:
    """By name, numbers as numbers (worker-2 before worker-10): the same order whoever joined first."""

    def name_parts(member: Member) -> tuple[str, int, str]:
        stem = member.name.rstrip("0123456789")
        return stem, int(member.name[len(stem) :] or -1), member.name

    return tuple(sorted(members, key=name_parts))


def rank_seats(
    job: Job, epoch: Epoch, workers: Sequence[Member], left: frozenset[str] = frozenset()
) -> tuple[str, ...]:
    """Names in rank order of the next epoch's ``workers``, and of the dead whose data stays theirs.

    ``left``: keys of members that went by themselves; they leave nothing behind. (): the workers alone.
    """
    names = [member.name for member in workers]
    gone = {member.name for member in epoch.workers if member.key in left}
    absent = [name for name in epoch.ranks if name not in names and name not in gone]
    if not absent or not job.worker_strategy.seat:
        return ()
    placeholders = [Member(Role.WORKER, name, "") for name in absent]
    return tuple(member.name for member in rank_order([*workers, *placeholders]))


def blocks_by_owner(job: Job, epoch: Epoch) -> dict[str, GlobalIds]:
    """Shard key -> its blocks; shards without blocks are left out."""
    owners = concatenate_owners(job, epoch.owners)
    held = {member.key: np.flatnonzero(owners == index) for index, member in enumerate(epoch.shards)}
    return {key: blocks for key, blocks in held.items() if len(blocks)}


def blocks_owned_by(
    job: Job, epoch: Epoch, shards: Sequence[Member], blocks: Iterable[GlobalIds]
) -> dict[str, GlobalIds]:
    """Those of these blocks that one of these shards owns, under the former owner "". {}: none."""
    every = np.unique(np.concatenate([np.empty(0, np.int64), *blocks]))
    indices = [epoch.shard_index(member.key) for member in shards]
    kept = every[np.isin(concatenate_owners(job, epoch.owners)[every], indices)]
    return {"": kept} if len(kept) else {}


def orphaned_blocks(job: Job, before: Epoch, after: Epoch) -> dict[str, GlobalIds]:
    """Former owner -> blocks that have an owner in ``before`` and none in ``after``."""
    nobody = concatenate_owners(job, after.owners) == NOBODY
    held = {key: blocks[nobody[blocks]] for key, blocks in blocks_by_owner(job, before).items()}
    return {key: blocks for key, blocks in held.items() if len(blocks)}
