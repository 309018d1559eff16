"""Who owns which block. Pure: epochs in, shares out.

An :class:`Epoch` is one numbered placement; it never changes. A block's owner is an index into ``shards`` of the same epoch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from scar.blocks import Ids
from scar.tables import Job

Owners = NDArray[np.uint16]
NOBODY = 65535


class Role(IntEnum):
    """What a process is; equal to the protocol's numbers."""

    SHARD = 1
    WORKER = 2
    CHECKPOINT = 3
    RECOVERY = 4
    DETECTOR = 5


class Source(IntEnum):
    """Where a block that changed hands takes its value from; equal to the protocol's numbers."""

    INITIAL = 1
    OBJECT = 2
    DONOR = 3
    REPLICA = 4


@dataclass(frozen=True, order=True)
class Member:
    """One life of one process."""

    role: Role
    name: str
    incarnation: str
    address: str = field(default="", compare=False)

    @property
    def key(self) -> str:
        return f"{self.name}@{self.incarnation}"


@dataclass(frozen=True)
class BlockGroup:
    """Blocks of one table that changed hands in an epoch and share one origin.

    ``watermark``: worker key -> last push id contained.
    """

    table: str
    ids: Ids
    former_owner: str
    source: Source
    object_key: str = ""
    clock: int = 0
    watermark: Mapping[str, int] = field(default_factory=dict)


END = "end"  # cause of a job's last epoch: nobody is in it, and every shard that was is fenced


@dataclass(frozen=True)
class Epoch:
    """One placement. ``moved``: what changed hands (or value) on the way from the epoch before.

    ``seats``, ``restart``: docs/protocol.md §12.
    """

    number: int
    author: str
    job: str
    shards: tuple[Member, ...]
    workers: tuple[Member, ...]
    owners: Mapping[str, Owners]
    moved: tuple[BlockGroup, ...] = ()
    fenced: tuple[str, ...] = ()
    rollback: bool = False
    manifest: int = 0
    clock: int = 0
    cause: str = "start"
    failure: int = 0
    seats: tuple[str, ...] = ()
    restart: int = 0

    @cached_property
    def ranks(self) -> tuple[str, ...]:
        """Names of workers in rank order, the living and those whose seat is kept."""
        return self.seats or tuple(member.name for member in self.workers)

    def shard_index(self, key: str) -> int:
        """Index of the shard with this member key; -1 when it is not part of the epoch."""
        return next((index for index, member in enumerate(self.shards) if member.key == key), -1)

    def owned(self, table: str, index: int) -> Ids:
        """Ids of the blocks that shard ``index`` owns, ascending."""
        return np.flatnonzero(self.owners[table] == index).astype(np.uint32)

    def owned_by(self, key: str) -> dict[str, Ids]:
        """Table -> blocks of the shard with this member key."""
        index = self.shard_index(key)
        return {table: self.owned(table, index) if index >= 0 else np.empty(0, np.uint32) for table in self.owners}

    def split(self, table: str, ids: Ids) -> list[tuple[int, NDArray[np.int64]]]:
        """Shares of ``ids`` by owner: (shard index, positions in ids), each in ascending order. Orphans have index NOBODY."""
        owner = self.owners[table][ids]
        order = np.argsort(owner, kind="stable")
        cuts = np.flatnonzero(np.diff(owner[order])) + 1
        return [(int(owner[part[0]]), part) for part in np.split(order, cuts) if len(part)]

    def rank(self, worker: str) -> int:
        """Position of the worker (by name) in rank order; -1 when it is no member."""
        return self.ranks.index(worker) if worker in self.ranks else -1


def spread(job: Job, shards: int) -> dict[str, Owners]:
    """Blocks of all tables dealt to ``shards`` at random, evenly, by the job's seed (seed 000, section 4.1)."""
    order = np.random.Generator(np.random.Philox(key=[job.seed & 0xFFFFFFFFFFFFFFFF, 0x5CA4])).permutation(job.blocks)
    owner = np.empty(job.blocks, dtype=np.uint16)
    owner[order] = np.arange(job.blocks, dtype=np.int64) % shards
    return {table.name: owner[job.bases[table.name] : job.bases[table.name] + table.blocks].copy() for table in job.tables}


def chain(job: Job, epoch: Epoch, key: str) -> tuple[Member, ...]:
    """Who keeps copies of the blocks of shard ``key``, next replica first; empty without replicas, or for a stranger.

    The shards of an epoch form a ring whose order depends on their names and the job's seed alone, so one that comes or goes
    changes the chains of its neighbours and no others.
    """

    def place(member: Member) -> bytes:
        return hashlib.blake2b(f"{job.seed}/{member.name}".encode(), digest_size=8).digest()

    ring = sorted(epoch.shards, key=place)
    at = next((index for index, member in enumerate(ring) if member.key == key), None)
    if at is None:
        return ()
    length = min(job.strategy.replicas, len(ring) - 1)
    return tuple(ring[(at + hop) % len(ring)] for hop in range(1, length + 1))


def owned_counts(owners: Mapping[str, Owners], shards: int) -> NDArray[np.int64]:
    """Blocks that each shard owns, over all tables."""
    total = np.zeros(shards, dtype=np.int64)
    for owner in owners.values():
        total += np.bincount(owner[owner != NOBODY], minlength=shards)[:shards]
    return total


def concatenated(job: Job, owners: Mapping[str, Owners]) -> Owners:
    """Owners by global id."""
    return np.concatenate([owners[table.name] for table in job.tables])


def global_ids(job: Job, table: str, ids: Ids) -> NDArray[np.int64]:
    """Global ids of a table's blocks."""
    return ids.astype(np.int64) + job.bases[table]


def by_table(job: Job, global_ids: Sequence[int] | NDArray[np.int64]) -> dict[str, Ids]:
    """Ascending global ids -> table -> block ids (only tables that occur)."""
    ids = np.asarray(global_ids, dtype=np.int64)
    found = {}
    for table in job.tables:
        base = job.bases[table.name]
        low, high = np.searchsorted(ids, (base, base + table.blocks))
        if high > low:
            found[table.name] = (ids[low:high] - base).astype(np.uint32)
    return found
