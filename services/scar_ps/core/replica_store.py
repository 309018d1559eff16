"""Copies of other shards' blocks that this shard keeps, to continue with them when their owner dies.

Of each block at most one copy is kept, the newest. A copy carries what makes a push exactly once: its owner's
watermark when it was copied. It may go as long as it likes; it is dropped when the block's owner says that
its own chain is whole, when a newer copy comes, or when this shard becomes the owner.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from scar.blocks import BlockState, Ids, Positions
from scar.errors import NotServing, OutOfOrder
from scar.placement import BlockGroup, BlockSource, Epoch, replica_chain
from scar.tables import Job, Table
from scar_ps.core.block_data import CopiedBlocks, IncomingBlocks, differing_values
from scar_ps.core.block_store import BlockStore, Mask
from scar_ps.core.push_sequences import merge_watermarks

WantedReplicas = Sequence[tuple[str, Ids]]
EMPTY = 1  # ``loading`` of a block in a replica: there is room for it, and no copy


@dataclass(frozen=True, eq=False, slots=True)
class ReplicationBatch:
    """Blocks of ``owner`` that changed between its numbers ``since`` and ``number``.

    ``since`` 0: all that it has.

    ``watermark`` holds for all of its blocks, together with the watermark of each copy for that copy's
    alone. ``updates``: how far the owner is; not sent. ``dropped``: blocks by table whose copies are out of
    date.
    """

    owner: str
    epoch: int
    number: int
    since: int
    clock: int
    watermark: Mapping[str, int]
    copies: Sequence[CopiedBlocks]
    updates: int = 0
    dropped: Mapping[str, Ids] = field(default_factory=dict)

    @property
    def block_count(self) -> int:
        return sum(len(copy.state.ids) for copy in self.copies)

    @property
    def bytes(self) -> int:
        """Values, slots and steps."""
        steps = (copy.contents.steps for copy in self.copies)
        counted = sum(array.nbytes for array in steps if array is not None)
        return counted + sum(copy.contents.bytes for copy in self.copies)


@dataclass(eq=False, slots=True)
class OwnerReplica:
    """All copies of blocks of one owner. ``epoch``, ``number``: of the newest batch.

    ``base_watermarks``: what restored blocks contain beside ``watermark``, by their origin.
    """

    owner: str
    epoch: int = 0
    number: int = 0
    clock: int = 0
    watermark: Mapping[str, int] = field(default_factory=dict)
    stores: dict[str, BlockStore] = field(default_factory=dict)
    base_watermarks: list[Mapping[str, int]] = field(default_factory=lambda: [{}])

    def __len__(self) -> int:
        return sum(int(np.count_nonzero(store.loading == 0)) for store in self.stores.values())

    def apply_batch(self, job: Job, batch: ReplicationBatch) -> None:
        """The owner's next batch."""
        self.epoch = batch.epoch
        self.number = batch.number
        self.clock = batch.clock
        self.watermark = batch.watermark
        for table, ids in batch.dropped.items():
            self._empty_blocks(table, ids)
        for copy in batch.copies:
            store = self._store_for(job.table(copy.state.table), copy.state.ids)
            at = store.find_blocks(copy.state.ids)
            store.install_blocks(at, copy.contents)
            store.loading[at] = 0
            store.origin[at] = self._number_watermark(copy.state.watermark)
        if self.stores and any(self.base_watermarks):
            self._forget_overwritten()

    def _empty_blocks(self, table: str, ids: Ids) -> None:
        """Their room stays: they may come again."""
        store = self.stores.get(table)
        if store is not None:
            at = store.find_blocks(ids)
            store.loading[at[at >= 0]] = EMPTY

    def _store_for(self, table: Table, ids: Ids) -> BlockStore:
        """The table's store, with room for these blocks."""
        store = self.stores.get(table.name)
        if store is None:
            store = self.stores[table.name] = BlockStore(table, ids)
        elif (store.find_blocks(ids) < 0).any():
            wider = np.union1d(store.ids, ids).astype(np.uint32)
            store = self.stores[table.name] = store.copy_for(
                wider, np.zeros(len(wider), np.bool_), lambda: None
            )
        return store

    def _number_watermark(self, base: Mapping[str, int]) -> int:
        """Number of this base watermark: an equal one's, a free one, or a new one. 0 is the empty one."""
        known = self.base_watermarks
        if base in known:
            return known.index(base)
        if {} in known[1:]:
            number = known.index({}, 1)
            known[number] = base
            return number
        known.append(base)
        return len(known) - 1

    def _forget_overwritten(self) -> None:
        """Base watermarks of blocks all of which came again without."""
        most = len(self.base_watermarks)
        blocks = sum(np.bincount(store.origin, minlength=most) for store in self.stores.values())
        for number in np.flatnonzero(blocks == 0).tolist():
            self.base_watermarks[number] = {}

    def drop_blocks(self, table: str, gone: Ids) -> None:
        """Forget these blocks, as far as they are here."""
        store = self.stores.get(table)
        if store is None:
            return
        stays: Mask = ~np.isin(store.ids, gone)
        if not stays.any():
            del self.stores[table]
        elif not stays.all():
            self.stores[table] = store.copy_for(
                store.ids[stays], np.zeros(int(stays.sum()), np.bool_), lambda: None
            )

    def split_off(self, owned: Mapping[str, Ids]) -> OwnerReplica:
        """What is not in ``owned`` (ids by table), as it is now. No longer here."""
        rest = replace(self, stores={}, base_watermarks=list(self.base_watermarks))
        for table, store in list(self.stores.items()):
            gone = np.setdiff1d(store.ids, owned[table])
            if len(gone):
                rest.stores[table] = store.copy_for(gone, np.zeros(len(gone), np.bool_), lambda: None)
                self.drop_blocks(table, gone)
        return rest

    def find_copies(self, wanted: WantedReplicas) -> list[BlockState]:
        """What is here of these blocks."""
        found = []
        for table, ids in wanted:
            store = self.stores.get(table)
            here = ids[find_copied(store, ids) >= 0] if store is not None else ids[:0]
            if store is None or not len(here):
                continue
            origins = store.origin[store.find_blocks(here)]
            for origin in np.unique(origins).tolist():
                state = merge_watermarks(self.base_watermarks[origin], self.watermark)
                found.append(BlockState(table, here[origins == origin], self.clock, state, self.owner))
        return found


def find_copied(store: BlockStore, ids: Ids) -> Positions:
    """Positions of these blocks in the store of a replica; -1: there is no copy."""
    at = store.find_blocks(ids)
    return np.where((at >= 0) & (store.loading[at] == 0), at, -1)


class ReplicaStore:
    """All copies that this shard keeps. ``key``: its member key.

    ``by_owner``: of blocks for which the watermark of their owner's batches holds; ``detached``: of blocks
    that have changed hands since, or were put back. They contain what they did then, until they come again.
    """

    def __init__(self, key: str) -> None:
        self._key = key
        self._sealed: set[str] = set()  # owners of which nothing more is taken before the next epoch
        self.by_owner: dict[str, OwnerReplica] = {}
        self.detached: list[OwnerReplica] = []

    def __len__(self) -> int:
        return sum(map(len, self._all()))

    def _all(self) -> list[OwnerReplica]:
        return [*self.by_owner.values(), *self.detached]

    def receive_batch(self, job: Job, epoch: Epoch, batch: ReplicationBatch) -> None:
        """Take a batch of this epoch, or nothing of it.

        Raises :class:`OutOfOrder` when one before it is missing, or a later one was overtaken by it;
        :class:`NotServing` while its owner is being declared dead.
        """
        if batch.owner in self._sealed or epoch.shard_index(batch.owner) < 0:
            raise NotServing(f"nothing more is taken from {batch.owner} in epoch {epoch.number}")
        known = self.by_owner.get(batch.owner)
        have = known.number if known else 0
        # nobody waits for it any more, and it came later than what was sent in its place
        overtaken = known is not None and known.epoch == batch.epoch and batch.number < have
        if overtaken or (batch.since and batch.since != have):
            raise OutOfOrder(f"{self._key} has batch {have} of {batch.owner}, not {batch.since}")
        replica = known if known is not None and batch.since else OwnerReplica(batch.owner)
        replica.apply_batch(job, batch)
        self.by_owner[batch.owner] = replica
        for copy in batch.copies:
            self._drop_blocks(copy.state.table, copy.state.ids, but=batch.owner)

    def claim_blocks(self, dead: Iterable[str], wanted: WantedReplicas) -> list[BlockState]:
        """Copies of these blocks of dead owners; their state is final until the next epoch."""
        self._sealed |= set(dead)
        return [copy for replica in self._all() for copy in replica.find_copies(wanted)]

    def release_owner(self, job: Job, epoch: Epoch, owner: str) -> None:
        """The owner's chain is whole: only those in it keep copies of its blocks, and only as its copies."""
        mine = any(member.key == self._key for member in replica_chain(job, epoch, owner))
        for table, ids in epoch.owned_by(owner).items():
            self._drop_blocks(table, ids, but=owner if mine else "")

    def find_incoming(self, job: Job, epoch: Epoch) -> list[IncomingBlocks]:
        """What an epoch gives to this shard out of its own copies, as if a donor had sent it."""
        index = epoch.shard_index(self._key)
        wanted: dict[tuple[str, str], list[Ids]] = {}
        for group in epoch.moved:
            if group.source is BlockSource.REPLICA:
                mine = group.ids[epoch.owners[group.table][group.ids] == index]
                wanted.setdefault((group.former_owner, group.table), []).append(mine)
        incoming = []
        for (former, name), parts in wanted.items():
            ids = np.sort(np.concatenate(parts))
            if len(ids):
                incoming += self._collect_copies(job.table(name), ids, former, epoch.number - 1)
        return incoming

    def _collect_copies(self, table: Table, ids: Ids, former: str, epoch: int) -> list[IncomingBlocks]:
        """Copies of these blocks, whoever owned them; [] when one is missing."""
        gathered = BlockStore(table, ids)
        found = np.zeros(len(ids), np.bool_)
        for replica in self._all():
            store = replica.stores.get(table.name)
            if store is None:
                continue
            source = find_copied(store, ids)
            at = np.flatnonzero(source >= 0)
            gathered.install_blocks(at, store.copy_blocks(source[at]))
            found[at] = True
        if not found.all():
            return []
        contents = gathered.copy_blocks(np.arange(len(ids)))
        contents.saved = differing_values(contents.values)
        return [IncomingBlocks(epoch, former, table.name, ids, contents)]

    def adopt_epoch(self, epoch: Epoch) -> None:
        """A new epoch: what is ours now needs no copy here, and batches of all owners are taken again.

        Nor does what the epoch puts back in an older state: the pushes beyond it are sent again or reported
        as lost, so a copy that contains them is of a history that is over.
        """
        self._sealed = set()
        for table, ids in epoch.owned_by(self._key).items():
            self._drop_blocks(table, ids)
        self._detach(epoch)
        for group in epoch.moved:
            if group.source is not BlockSource.DONOR:
                self._drop_newer(group)

    def _detach(self, epoch: Epoch) -> None:
        """Blocks that an owner gave away, or has to load and settle, are not in its batches for a while."""
        moved: dict[str, list[Ids]] = {}
        for group in epoch.moved:
            moved.setdefault(group.table, []).append(group.ids)
        for owner, replica in self.by_owner.items():
            steady = {
                table: np.setdiff1d(ids, np.concatenate([ids[:0], *moved.get(table, [])]))
                for table, ids in epoch.owned_by(owner).items()
            }
            rest = replica.split_off(steady)
            if len(rest):
                self.detached.append(rest)

    def _drop_newer(self, group: BlockGroup) -> None:
        """Copies of these blocks that contain pushes which their restored state lacks."""
        for replica in self._all():
            for copy in replica.find_copies([(group.table, group.ids)]):
                if any(number > group.watermark.get(key, 0) for key, number in copy.watermark.items()):
                    replica.drop_blocks(group.table, copy.ids)
        self._forget_empty()

    def _drop_blocks(self, table: str, ids: Ids, but: str = "") -> None:
        """``but``: an owner that keeps them, and its copies stay."""
        mine = self.by_owner.get(but)
        for replica in self._all():
            if replica is not mine:
                replica.drop_blocks(table, ids)
        self._forget_empty(but)

    def _forget_empty(self, but: str = "") -> None:
        self.by_owner = {
            owner: replica for owner, replica in self.by_owner.items() if replica.stores or owner == but
        }
        self.detached = [replica for replica in self.detached if replica.stores]
