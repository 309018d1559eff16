"""Copies of other shards' blocks that this shard keeps, so that it can go on with them when their owner dies. Pure.

Of each block at most one copy is kept, the newest. A copy carries what makes a push exactly once: its owner's watermark when it
was copied. It may go as long as it likes; it is dropped when the block's owner says that its own chain is whole, when a newer
copy comes, or when this shard becomes the owner.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from scar.blocks import Array, Ids
from scar.errors import NotServing, OutOfOrder
from scar.placement import Epoch, Source, chain
from scar.tables import Job, Table
from scar_ps.barrier import merged
from scar_ps.blockstore import BlockStore, Mask
from scar_ps.holdings import Aside
from scar_ps.rounds import Copied

Wanted = Sequence[tuple[str, Ids]]


@dataclass(frozen=True, eq=False, slots=True)
class Shipment:
    """Blocks of ``owner`` that changed between its numbers ``since`` and ``number`` (``since`` 0: all that it has).

    ``watermark`` holds for all of its blocks, together with the watermark of each piece for the piece's alone.
    ``updates``: how far the owner is; not sent.
    """

    owner: str
    epoch: int
    number: int
    since: int
    clock: int
    watermark: Mapping[str, int]
    pieces: Sequence[Copied]
    updates: int = 0

    @property
    def blocks(self) -> int:
        return sum(len(piece.ids) for piece in self.pieces)


@dataclass(frozen=True, eq=False, slots=True)
class Kept:
    """Blocks of one table whose copies share one state."""

    table: str
    ids: Ids
    clock: int
    watermark: Mapping[str, int]


@dataclass(eq=False, slots=True)
class Replica:
    """All copies of blocks of one owner. ``bases``: what restored blocks contain beside ``watermark``, by their origin."""

    owner: str
    number: int = 0
    clock: int = 0
    watermark: Mapping[str, int] = field(default_factory=dict)
    stores: dict[str, BlockStore] = field(default_factory=dict)
    bases: list[Mapping[str, int]] = field(default_factory=lambda: [{}])

    def __len__(self) -> int:
        return sum(len(store) for store in self.stores.values())

    def take(self, job: Job, shipment: Shipment) -> None:
        """The owner's next shipment."""
        self.number, self.clock = shipment.number, shipment.clock
        self.watermark = shipment.watermark
        for piece in shipment.pieces:
            store = self._room(job.table(piece.table), piece.ids)
            at = store.find(piece.ids)
            store.install(at, piece.contents)
            store.origin[at] = self._origin(piece.watermark)

    def _room(self, table: Table, ids: Ids) -> BlockStore:
        """The table's store, with room for these blocks."""
        store = self.stores.get(table.name)
        if store is None:
            store = self.stores[table.name] = BlockStore(table, ids)
        elif (store.find(ids) < 0).any():
            wider = np.union1d(store.ids, ids).astype(np.uint32)
            store = self.stores[table.name] = store.carried(wider, np.zeros(len(wider), np.bool_), lambda: None)
        return store

    def _origin(self, base: Mapping[str, int]) -> int:
        if base not in self.bases:
            self.bases.append(base)
        return self.bases.index(base)

    def drop(self, table: str, gone: Ids) -> None:
        """Forget these blocks, as far as they are here."""
        store = self.stores.get(table)
        if store is None:
            return
        stays: Mask = ~np.isin(store.ids, gone)
        if not stays.any():
            del self.stores[table]
        elif not stays.all():
            self.stores[table] = store.carried(store.ids[stays], np.zeros(int(stays.sum()), np.bool_), lambda: None)

    def kept(self, wanted: Wanted) -> list[Kept]:
        """What is here of these blocks."""
        found = []
        for table, ids in wanted:
            store = self.stores.get(table)
            here = ids[store.find(ids) >= 0] if store is not None else ids[:0]
            if store is None or not len(here):
                continue
            origins = store.origin[store.find(here)]
            for origin in np.unique(origins).tolist():
                state = merged(self.bases[origin], self.watermark)
                found.append(Kept(table, here[origins == origin], self.clock, state))
        return found


class Replicas:
    """All copies that this shard keeps. ``key``: its member key."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._sealed: set[str] = set()  # owners of which nothing more is taken before the next epoch
        self.by_owner: dict[str, Replica] = {}

    def __len__(self) -> int:
        return sum(len(replica) for replica in self.by_owner.values())

    def receive(self, job: Job, epoch: Epoch, shipment: Shipment) -> None:
        """Take a shipment of this epoch, or nothing of it.

        Raises :class:`OutOfOrder` when one before it is missing, :class:`NotServing` while its owner is being declared dead.
        """
        if shipment.owner in self._sealed or epoch.shard_index(shipment.owner) < 0:
            raise NotServing(f"nothing more is taken from {shipment.owner} in epoch {epoch.number}")
        known = self.by_owner.get(shipment.owner)
        if shipment.since and (known is None or known.number != shipment.since):
            have = known.number if known else 0
            raise OutOfOrder(f"{self._key} has shipment {have} of {shipment.owner}, not {shipment.since}")
        replica = known if known is not None and shipment.since else Replica(shipment.owner)
        replica.take(job, shipment)
        self.by_owner[shipment.owner] = replica
        for piece in shipment.pieces:
            self._drop(piece.table, piece.ids, but=shipment.owner)

    def claim(self, dead: Iterable[str], wanted: Wanted) -> list[Kept]:
        """Copies of these blocks of dead owners; their state is final until the next epoch."""
        self._sealed |= set(dead)
        return [kept for replica in self.by_owner.values() for kept in replica.kept(wanted)]

    def release(self, job: Job, epoch: Epoch, owner: str) -> None:
        """The owner's chain is whole: only those in it keep copies of its blocks, and only as its copies."""
        mine = any(member.key == self._key for member in chain(job, epoch, owner))
        for table, ids in epoch.owned_by(owner).items():
            self._drop(table, ids, but=owner if mine else "")

    def given(self, job: Job, epoch: Epoch) -> list[Aside]:
        """What an epoch gives to this shard out of its own copies, as if a donor had sent it."""
        index, wanted = epoch.shard_index(self._key), dict[tuple[str, str], list[Ids]]()
        for group in epoch.moved:
            if group.source is Source.REPLICA:
                mine = group.ids[epoch.owners[group.table][group.ids] == index]
                wanted.setdefault((group.former_owner, group.table), []).append(mine)
        asides = []
        for (former, name), parts in wanted.items():
            ids = np.sort(np.concatenate(parts))
            if len(ids):
                asides += self._collected(job.table(name), ids, former, epoch.number - 1)
        return asides

    def _collected(self, table: Table, ids: Ids, former: str, epoch: int) -> list[Aside]:
        """Copies of these blocks, whoever owned them; [] when one is missing."""
        gathered, found = BlockStore(table, ids), np.zeros(len(ids), np.bool_)
        for replica in self.by_owner.values():
            store = replica.stores.get(table.name)
            if store is None:
                continue
            source = store.find(ids)
            at = np.flatnonzero(source >= 0)
            gathered.install(at, store.copy(source[at]))
            found[at] = True
        if not found.all():
            return []
        contents = gathered.copy(np.arange(len(ids)))
        contents.saved = unlike(contents.values)
        return [Aside(epoch, former, table.name, ids, contents)]

    def follow(self, epoch: Epoch) -> None:
        """A new epoch: what is ours now needs no copy here, and owners may be heard again."""
        self._sealed = set()
        for table, ids in epoch.owned_by(self._key).items():
            self._drop(table, ids)

    def _drop(self, table: str, ids: Ids, but: str = "") -> None:
        for replica in self.by_owner.values():
            if replica.owner != but:
                replica.drop(table, ids)
        self.by_owner = {owner: replica for owner, replica in self.by_owner.items() if len(replica) or owner == but}


def unlike(values: Array) -> Array:
    """Saved values that no value equals: what a checkpoint holds of a copied block is not known here, so it counts as new."""
    known: Any = values
    return np.full_like(known, np.nan) if known.dtype.kind == "f" else ~known
