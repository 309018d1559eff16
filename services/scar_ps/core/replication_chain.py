"""What this shard owes the next one in the chain of its blocks, and what waits for that.

Every ``period`` updates the blocks that have changed go to the next replica; where more than one is kept,
that one sends them on. Blocks that are not settled do not go: a copy's watermark must cover everything that
was applied to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from scar.blocks import BlockState, Ids, Positions
from scar.placement import Epoch, Member, replica_chain
from scar.strategies import Strategy
from scar.tables import Job
from scar_ps.core.block_data import CopiedBlocks
from scar_ps.core.block_store import BlockStore, Mask
from scar_ps.core.ownership import BlockOwnership
from scar_ps.core.replica_store import OwnerReplica, ReplicaStore, ReplicationBatch

ALONE = Strategy("partial")


@dataclass(frozen=True, eq=False, slots=True)
class OutgoingBatch:
    """What goes to ``target`` now.

    ``release``: who hears, when all of it has arrived, that this shard's chain is whole.
    """

    target: Member
    epoch: int
    batches: Sequence[ReplicationBatch]
    release: Sequence[Member] = ()


class ReplicationChain:
    """``key``: this shard's member key.

    ``updates``: applied here; ``replicated``: those that the next replica contains.

    ``urgent``: something has to go although no period is over.
    """

    def __init__(self, key: str) -> None:
        self._key = key
        self._strategy = ALONE
        self._members: tuple[Member, ...] = ()
        self._forwarded: frozenset[str] = frozenset()  # owners whose blocks go on from here
        self._acked: dict[str, int] = {}  # owner -> its newest batch that the next replica has
        self._number = 0
        self._release_pending = False
        # batches of the last outgoing one of which nobody has said whether they arrived
        self.unanswered: tuple[ReplicationBatch, ...] = ()
        self.updates = 0
        self.replicated = 0
        self.urgent = False

    @property
    def next_replica(self) -> Member | None:
        return self._members[0] if self._members else None

    @property
    def acknowledgements_wait(self) -> bool:
        """Acknowledgements wait for the next replica."""
        return self._strategy.waits and bool(self._members)

    def required_update(self, updates: int) -> int:
        """The update that the next replica must have before this one may be acknowledged."""
        return updates - updates % self._strategy.period

    def announced_update(self, updates: int) -> int:
        """The newest of these updates of which somebody may hear."""
        if not self.acknowledgements_wait:
            return updates
        most = self.required_update(self.replicated) + self._strategy.period - 1
        return min(updates, most + self._strategy.lag)

    @property
    def is_due(self) -> bool:
        return self.urgent or bool(self.unanswered) or self.required_update(self.updates) > self.replicated

    @property
    def lacks_settled(self) -> bool:
        """Acknowledgements wait for the next replica, and it may not have all that has settled."""
        return self.acknowledgements_wait and (self.urgent or bool(self.unanswered))

    def pass_update(self, stores: Iterable[BlockStore]) -> None:
        """Count an update as replicated of which the next replica needs nothing, without asking anybody."""
        idle = self._strategy.missing and not (self.urgent or self.unanswered)
        since = self._acked.get(self._key, 0)
        if idle and not any(_is_due(store, since) for store in stores):
            self.replicated = self.updates

    def adopt_epoch(self, job: Job, epoch: Epoch, gained: bool) -> None:
        """A new epoch. A new neighbour gets everything; others hear when the chain is whole again."""
        former = self._members
        self._strategy = job.strategy
        self._members = replica_chain(job, epoch, self._key)
        if former[:1] != self._members[:1]:
            self._acked = {}
        if former != self._members:
            self.urgent = True
        changed = gained or former != self._members
        self._release_pending = bool(self._members) and (self._release_pending or changed)
        chains = {owner.key: replica_chain(job, epoch, owner.key) for owner in epoch.shards if self._members}
        forwarded = frozenset(
            key for key, line in chains.items() if any(one.key == self._key for one in line[:-1])
        )
        self.urgent = self.urgent or forwarded != self._forwarded
        self._forwarded = forwarded

    def forwards(self, owner: str) -> bool:
        """Do this owner's blocks go on from here, in this epoch?"""
        return owner in self._forwarded

    # --- sending
    # -----------------------------------------------------------------------------------------------------

    def next_outgoing(
        self,
        epoch: Epoch,
        ownership: BlockOwnership,
        replicas: ReplicaStore,
        watermark: Mapping[str, int],
        clock: int,
    ) -> OutgoingBatch:
        """Copy what has changed; it counts as sent. There must be a next replica, and nothing unanswered."""
        self.urgent = False
        own = self._own_batch(epoch, ownership, watermark, clock)
        if own is None:
            self.replicated = self.updates
        forwarded = (self._forwarded_batch(epoch, replica) for replica in replicas.by_owner.values())
        whole = all(_is_replicated(store) for store in ownership.tables.values())
        release: list[Member] = []
        if whole and self._release_pending:
            release = [shard for shard in epoch.shards if shard.key != self._key]
        batches = [one for one in (own, *forwarded) if one is not None]
        self.unanswered = tuple(batches)
        return OutgoingBatch(self._members[0], epoch.number, batches, release)

    def _own_batch(
        self, epoch: Epoch, ownership: BlockOwnership, watermark: Mapping[str, int], clock: int
    ) -> ReplicationBatch | None:
        since = self._acked.get(self._key, 0)
        copies: list[CopiedBlocks] = []
        dropped: dict[str, Ids] = {}
        stores = [
            store for store in ownership.tables.values() if store.marks is None or _is_due(store, since)
        ]
        # what is out of date at the replica is told with the next copies: until then it is as old as it says
        for store in ownership.tables.values() if stores else ():
            at, gone = _take_due(store, since == 0)
            copies += _copy_by_origin(store, at, lambda origin: ownership.watermark_of(origin, {}))
            dropped |= {store.table.name: store.ids[gone]} if len(gone) else {}
        if not copies:
            return None
        self._number += 1
        return ReplicationBatch(
            self._key,
            epoch.number,
            self._number,
            since,
            clock,
            dict(watermark),
            copies,
            self.updates,
            dropped,
        )

    def _forwarded_batch(self, epoch: Epoch, replica: OwnerReplica) -> ReplicationBatch | None:
        """What is sent on for another owner."""
        owner = replica.owner
        since = self._acked.get(owner, 0)
        if owner not in self._forwarded or since == replica.number:
            return None
        copies = []
        for name, store in replica.stores.items():
            there = store.find_blocks(epoch.owned_by(owner)[name])
            at = np.sort(there[there >= 0])
            at = at[store.changed[at] | (since == 0)]
            store.changed[at] = False
            copies += _copy_by_origin(store, at, replica.base_watermarks.__getitem__)
        watermark = dict(replica.watermark)
        return ReplicationBatch(owner, epoch.number, replica.number, since, replica.clock, watermark, copies)

    # --- answers
    # -----------------------------------------------------------------------------------------------------

    def record_arrival(self, outgoing: OutgoingBatch, batch: ReplicationBatch) -> None:
        """The target has it."""
        self._mark_answered(batch)
        if self.next_replica != outgoing.target:
            return
        self._acked[batch.owner] = batch.number
        if batch.owner == self._key:
            self.replicated = max(self.replicated, batch.updates)

    def record_failure(self, batch: ReplicationBatch, stores: Mapping[str, BlockStore], gap: bool) -> None:
        """The target may not have it: it goes again.

        ``stores``: of its owner; ``gap``: the target lacks what came before.
        """
        self._mark_answered(batch)
        self.urgent = True
        if gap:
            self._acked.pop(batch.owner, None)
        for copy in batch.copies:
            table = copy.state.table
            if table in stores:
                at = stores[table].find_blocks(copy.state.ids)
                stores[table].changed[at[at >= 0]] = True
        for table, ids in batch.dropped.items():
            marks = stores[table].marks if table in stores else None
            if marks is not None:
                at = stores[table].find_blocks(ids)
                marks.copied[at[at >= 0]] = True

    def _mark_answered(self, batch: ReplicationBatch) -> None:
        self.unanswered = tuple(one for one in self.unanswered if one is not batch)

    def record_completion(self, outgoing: OutgoingBatch, released: bool) -> None:
        """Everything has arrived in this epoch; ``released``: those who had to hear of it have."""
        if outgoing.release and released:
            self._release_pending = False
        self.urgent = self.urgent or not released


def _is_due(store: BlockStore, since: int) -> bool:
    """Whether something of the store has to go. ``since`` 0: the replica has nothing yet."""
    if store.marks is None:
        return bool(store.changed.any())
    if not store.marks.exposes:
        return False
    lacking = store.changed if since else store.changed | store.marks.copied
    return bool((lacking & store.marks.exposed & _ready(store)).any())


def _ready(store: BlockStore) -> Mask:
    """Blocks whose watermark, and where replicas keep only what is missing whose clock, is the shard's."""
    ready: Mask = ~store.unsettled & (store.loading == 0)
    return ready if store.marks is None else ready & (store.origin == 0)


def _is_replicated(store: BlockStore) -> bool:
    """Whether the next replica has, or soon gets, all that it has to have."""
    if (store.unsettled | (store.loading > 0)).any():
        return False
    return store.marks is None or not (store.changed & store.marks.exposed).any()


def _take_due(store: BlockStore, whole: bool) -> tuple[Positions, Positions]:
    """Positions of what goes, and of what the replica need not keep. ``whole``: it has nothing yet."""
    if store.marks is not None:
        return store.marks.take_due(store.changed, _ready(store), whole)
    at = np.flatnonzero((store.changed | whole) & _ready(store))
    store.changed[at] = False
    return at, at[:0]


def _copy_by_origin(
    store: BlockStore, at: Positions, base: Callable[[int], Mapping[str, int]]
) -> list[CopiedBlocks]:
    """Copies of these blocks, one for each origin.

    ``base``: what blocks of an origin contain beside the watermark.
    """
    copied = []
    for origin in np.unique(store.origin[at]).tolist():
        mine = at[store.origin[at] == origin]
        state = BlockState(store.table.name, store.ids[mine], watermark=base(origin))
        copied.append(CopiedBlocks(state, store.copy_blocks(mine)))
    return copied
