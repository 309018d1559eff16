"""What this shard owes the next one in the chain of its blocks, and what waits for that. Pure.

Every ``period`` updates the blocks that have changed go to the next replica; where more than one is kept, that one sends them
on. Blocks that are not settled do not go: a copy's watermark must cover everything that was applied to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from scar.blocks import Positions
from scar.placement import Epoch, Member, chain
from scar.strategies import Strategy
from scar.tables import Job
from scar_ps.blockstore import BlockStore
from scar_ps.holdings import Holdings
from scar_ps.replicas import Replica, Replicas, Shipment
from scar_ps.rounds import Copied

ALONE = Strategy("partial")


@dataclass(frozen=True, eq=False, slots=True)
class Cargo:
    """What goes to ``target`` now; ``tell``: who hears, when all of it has arrived, that this shard's chain is whole."""

    target: Member
    epoch: int
    shipments: Sequence[Shipment]
    tell: Sequence[Member] = ()


class Chain:
    """``key``: this shard's member key. ``updates``: applied here; ``shipped``: those that the next replica contains.

    ``urgent``: something has to go although no period is over.
    """

    def __init__(self, key: str) -> None:
        self._key = key
        self._strategy = ALONE
        self._members: tuple[Member, ...] = ()
        self._passes: frozenset[str] = frozenset()  # owners whose blocks go on from here
        self._acked: dict[str, int] = {}  # owner -> its newest shipment that the next replica has
        self._number = 0
        self._untold = False
        self.updates = self.shipped = 0
        self.urgent = False

    @property
    def next(self) -> Member | None:
        return self._members[0] if self._members else None

    @property
    def waits(self) -> bool:
        """Acknowledgements wait for the next replica."""
        return self._strategy.waits and bool(self._members)

    def owed(self, updates: int) -> int:
        """The update that the next replica must have before this one may be acknowledged."""
        return updates - updates % self._strategy.period

    def told(self, updates: int) -> int:
        """The newest of these updates of which somebody may hear."""
        return min(updates, self.owed(self.shipped) + self._strategy.period - 1) if self.waits else updates

    @property
    def due(self) -> bool:
        return self.urgent or self.owed(self.updates) > self.shipped

    def follow(self, job: Job, epoch: Epoch, gained: bool) -> None:
        """A new epoch. A new neighbour gets everything; others hear when the chain is whole again."""
        former, self._strategy = self._members, job.strategy
        self._members = chain(job, epoch, self._key)
        if former[:1] != self._members[:1]:
            self._acked = {}
        if former != self._members:
            self.urgent = True
        self._untold = bool(self._members) and (self._untold or gained or former != self._members)
        chains = {owner.key: chain(job, epoch, owner.key) for owner in epoch.shards if self._members}
        passed = frozenset(key for key, line in chains.items() if any(one.key == self._key for one in line[:-1]))
        self._passes, self.urgent = passed, self.urgent or passed != self._passes

    def passes(self, owner: str) -> bool:
        """Do this owner's blocks go on from here, in this epoch?"""
        return owner in self._passes

    # --- loading -----------------------------------------------------------------------------------------------------

    def load(self, epoch: Epoch, holdings: Holdings, replicas: Replicas, watermark: Mapping[str, int], clock: int) -> Cargo:
        """Copy what has changed; it counts as sent. There must be a next replica."""
        self.urgent = False
        own = self._own(epoch, holdings, watermark, clock)
        if own is None:
            self.shipped = self.updates
        passed = (self._passed(epoch, replica) for replica in replicas.by_owner.values())
        whole = all(not (store.unsettled | (store.loading > 0)).any() for store in holdings.tables.values())
        tell = [shard for shard in epoch.shards if shard.key != self._key] if whole and self._untold else []
        return Cargo(self._members[0], epoch.number, [one for one in (own, *passed) if one is not None], tell)

    def _own(self, epoch: Epoch, holdings: Holdings, watermark: Mapping[str, int], clock: int) -> Shipment | None:
        since, pieces = self._acked.get(self._key, 0), list[Copied]()
        for store in holdings.tables.values():
            at = np.flatnonzero((store.changed | (since == 0)) & ~store.unsettled & (store.loading == 0))
            store.changed[at] = False
            pieces += _copied(store, at, lambda origin: holdings.watermark(origin, {}))
        if not pieces:
            return None
        self._number += 1
        return Shipment(self._key, epoch.number, self._number, since, clock, dict(watermark), pieces, self.updates)

    def _passed(self, epoch: Epoch, replica: Replica) -> Shipment | None:
        """What is sent on for another owner."""
        owner, since = replica.owner, self._acked.get(replica.owner, 0)
        if owner not in self._passes or since == replica.number:
            return None
        pieces = []
        for name, store in replica.stores.items():
            there = store.find(epoch.owned_by(owner)[name])
            at = np.sort(there[there >= 0])
            at = at[store.changed[at] | (since == 0)]
            store.changed[at] = False
            pieces += _copied(store, at, replica.bases.__getitem__)
        watermark = dict(replica.watermark)
        return Shipment(owner, epoch.number, replica.number, since, replica.clock, watermark, pieces)

    # --- answers -----------------------------------------------------------------------------------------------------

    def arrived(self, cargo: Cargo, shipment: Shipment) -> None:
        """The target has it."""
        if self.next != cargo.target:
            return
        self._acked[shipment.owner] = shipment.number
        if shipment.owner == self._key:
            self.shipped = max(self.shipped, shipment.updates)

    def failed(self, shipment: Shipment, stores: Mapping[str, BlockStore], gap: bool) -> None:
        """The target may not have it: it goes again. ``stores``: of its owner; ``gap``: the target lacks what came before."""
        self.urgent = True
        if gap:
            self._acked.pop(shipment.owner, None)
        for piece in shipment.pieces:
            if piece.table in stores:
                at = stores[piece.table].find(piece.ids)
                stores[piece.table].changed[at[at >= 0]] = True

    def completed(self, cargo: Cargo, told: bool) -> None:
        """Everything has arrived in this epoch; ``told``: those who had to hear of it have."""
        if cargo.tell and told:
            self._untold = False
        self.urgent = self.urgent or not told


def _copied(store: BlockStore, at: Positions, base: Callable[[int], Mapping[str, int]]) -> list[Copied]:
    """Copies of these blocks, one for each origin. ``base``: what blocks of an origin contain beside the watermark."""
    copied = []
    for origin in np.unique(store.origin[at]).tolist():
        mine = at[store.origin[at] == origin]
        copied.append(Copied(store.table.name, store.ids[mine], base(origin), store.copy(mine)))
    return copied
