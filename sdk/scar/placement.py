"""Who owns which block. Pure: epochs in, shares out.

An :class:`Epoch` is one numbered placement; it never changes. A block's owner is an index into ``shards`` of
the same epoch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from scar.blocks import BlockState, Ids
from scar.errors import InvalidRequest
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

    @property
    def label(self) -> str:
        """As logs, metrics and certificates have it, such as "shard"."""
        return self.name.lower()


class BlockSource(IntEnum):
    """Where a block that changed hands takes its value from; equal to the protocol's numbers."""

    INITIAL = 1
    OBJECT = 2
    DONOR = 3
    REPLICA = 4
    WORKER = 5


@dataclass(frozen=True, order=True)
class Member:
    """One life of one process.

    ``lease_seconds``: a shard serves so long after its last accepted heartbeat, at most 60; 0: not told,
    which is as long as the recovery coordinator thinks. ``named_calls``: a worker says who it is as it asks
    for epochs.
    """

    role: Role
    name: str
    incarnation: str
    address: str = field(default="", compare=False)
    secret_hash: bytes = field(default=b"", compare=False, repr=False)  # see scar.member_secrets
    lease_seconds: float = field(default=0.0, compare=False)
    named_calls: bool = field(default=False, compare=False)

    @property
    def key(self) -> str:
        return f"{self.name}@{self.incarnation}"


@dataclass(frozen=True, eq=False, kw_only=True)
class BlockGroup(BlockState):
    """Blocks that changed hands in an epoch, in the state from which they are served again.

    ``former_owner``: member key of the shard that had them; empty: nobody had. ``source``, ``object_key``:
    where the values are; ``sender``: member key of the worker that has them.
    """

    former_owner: str = ""
    source: BlockSource
    object_key: str = ""
    sender: str = ""


END = "end"  # cause of a job's last epoch: nobody is in it, and every shard that was is fenced


@dataclass(frozen=True)
class Epoch:
    """One placement. ``moved``: what changed hands (or value) on the way from the epoch before.

    ``seats``, ``restart``: docs/protocol.md §12. ``finished``: §14. ``restoring``, ``resave``: §6.
    ``awaits_workers``: §4.
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
    finished: int = 0
    restoring: tuple[int, ...] = ()
    resave: bool = False
    awaits_workers: bool = False

    @cached_property
    def ranks(self) -> tuple[str, ...]:
        """Names of workers in rank order, the living and those whose seat is kept."""
        return self.seats or tuple(member.name for member in self.workers)

    @cached_property
    def _indices(self) -> Mapping[str, int]:
        return {member.key: index for index, member in enumerate(self.shards)}

    @cached_property
    def _sole_owners(self) -> Mapping[str, int]:
        """Of tables all of whose blocks have one."""
        return {
            table: int(owners[0])
            for table, owners in self.owners.items()
            if len(owners) and bool((owners == owners[0]).all())
        }

    def shard_index(self, key: str) -> int:
        """Index of the shard with this member key; -1 when it is not part of the epoch."""
        return self._indices.get(key, -1)

    def owned(self, table: str, index: int) -> Ids:
        """Ids of the blocks that shard ``index`` owns, ascending."""
        return np.flatnonzero(self.owners[table] == index).astype(np.uint32)

    def owned_by(self, key: str) -> dict[str, Ids]:
        """Table -> blocks of the shard with this member key."""
        index = self.shard_index(key)
        return {
            table: self.owned(table, index) if index >= 0 else np.empty(0, np.uint32) for table in self.owners
        }

    def split(self, table: str, ids: Ids) -> list[tuple[int, NDArray[np.int64]]]:
        """Shares of ``ids`` by owner: (shard index, positions in ids), each in ascending order. Orphans
        have index NOBODY.
        """
        if len(ids) and table in self._sole_owners:
            return [(self._sole_owners[table], np.arange(len(ids)))]
        owner = self.owners[table].take(ids)
        if len(owner) and bool((owner == owner[0]).all()):
            return [(int(owner[0]), np.arange(len(owner)))]
        order = owner.argsort(kind="stable")
        owner = owner[order]
        firsts = np.flatnonzero(owner[1:] != owner[:-1]) + 1
        edges = [0, *firsts.tolist(), len(owner)]
        return [(int(owner[start]), order[start:stop]) for start, stop in pairwise(edges) if start < stop]

    def ensure_valid(self, job: Job) -> None:
        """Raises :class:`InvalidRequest` unless it places exactly the blocks of this job on shards of its
        own.
        """
        if not 0 < self.number < 1 << 63:
            raise InvalidRequest(f"an epoch cannot have number {self.number}")
        blocks = {table.name: table.blocks for table in job.tables}
        if {name: len(owners) for name, owners in self.owners.items()} != blocks:
            raise InvalidRequest(f"epoch {self.number} does not place the blocks of job {job.name}")
        if any(((owners != NOBODY) & (owners >= len(self.shards))).any() for owners in self.owners.values()):
            raise InvalidRequest(f"epoch {self.number} places blocks on shards that it does not have")
        for group in self.moved:
            if group.table not in blocks or (len(group.ids) and int(group.ids[-1]) >= blocks[group.table]):
                raise InvalidRequest(
                    f"epoch {self.number} moves blocks of table {group.table!r} that do not exist"
                )

    def rank(self, worker: str) -> int:
        """Position of the worker (by name) in rank order; -1 when it is no member."""
        return self.ranks.index(worker) if worker in self.ranks else -1


def spread_blocks(job: Job, shards: int) -> dict[str, Owners]:
    """Blocks of all tables dealt to ``shards`` at random, evenly, by the job's seed (seed 000, section
    4.1).
    """
    order = np.random.Generator(np.random.Philox(key=[job.seed & 0xFFFFFFFFFFFFFFFF, 0x5CA4])).permutation(
        job.blocks
    )
    owner = np.empty(job.blocks, dtype=np.uint16)
    owner[order] = np.arange(job.blocks, dtype=np.int64) % shards
    return {
        table.name: owner[job.bases[table.name] : job.bases[table.name] + table.blocks].copy()
        for table in job.tables
    }


def replica_chain(job: Job, epoch: Epoch, key: str) -> tuple[Member, ...]:
    """Who keeps copies of the blocks of shard ``key``, next replica first; empty without replicas, or for a
    stranger.

    The shards of an epoch form a ring whose order depends on their names and the job's seed alone, so one
    that comes or goes changes the chains of its neighbours and no others.
    """

    def place(member: Member) -> bytes:
        return hashlib.blake2b(f"{job.seed}/{member.name}".encode(), digest_size=8).digest()

    ring = sorted(epoch.shards, key=place)
    at = next((index for index, member in enumerate(ring) if member.key == key), None)
    if at is None:
        return ()
    length = min(job.strategy.replicas, len(ring) - 1)
    return tuple(ring[(at + hop) % len(ring)] for hop in range(1, length + 1))


def has_moved(earlier: Epoch, later: Epoch, table: str) -> NDArray[np.bool_]:
    """Of each block of a table of both: whether another member owns it in the later one."""
    places = [later.shard_index(member.key) for member in earlier.shards]
    same = np.array([*places, NOBODY], np.int32)
    changed: NDArray[np.bool_] = same[np.minimum(earlier.owners[table], len(places))] != later.owners[table]
    return changed


def concatenate_owners(job: Job, owners: Mapping[str, Owners]) -> Owners:
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
