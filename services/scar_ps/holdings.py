"""Which blocks this shard has, and how they come and go with epochs.

A gained block is *loading* until its values are there, and *unsettled* until all workers have re-routed. Its restored value may
contain more pushes of a worker than this shard has seen; this *base* watermark stays with the block (its *origin*) until the
shard's own watermark has overtaken it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from scar.blocks import Array, Ids, Layout, Positions, positions_of
from scar.errors import Internal, InvalidRequest, NotServing, UnknownTable
from scar.placement import BlockGroup, Epoch, Source
from scar.tables import Job, Table
from scar_ps.barrier import NotYet, Sender, merged
from scar_ps.blockstore import BlockStore, Contents, Mask, Part, Progress


@dataclass(frozen=True, eq=False, slots=True)
class Load:
    """Blocks that are to be read from the store (or made) because of an epoch."""

    epoch: int
    manifest: int
    table: str
    ids: Ids
    source: Source
    object_key: str


@dataclass(frozen=True, eq=False, slots=True)
class Pending:
    """What one push owes some blocks of one table, while it waits at their owner for its clock to close (BSP)."""

    sender: Sender
    push_id: int
    clock: int
    ids: Ids
    values: Array

    def cut(self, table: Table, ids: Ids) -> Pending | None:
        """The same for those of these blocks that it concerns; None: for none."""
        at = positions_of(self.ids, ids)
        at = at[at >= 0]
        if not len(at):
            return None
        layout = table.layout.take(self.ids.astype(np.int64))
        return Pending(self.sender, self.push_id, self.clock, self.ids[at], layout.gather(self.values, at))


@dataclass(frozen=True, eq=False, slots=True)
class Aside:
    """Blocks copied from a donor in ``epoch``, with what waits for them there, until the next epoch makes them ours."""

    epoch: int
    donor: str
    table: str
    ids: Ids
    contents: Contents
    pending: Sequence[Pending] = ()


@dataclass(eq=False, slots=True)
class Relocation:
    """One table before and after an epoch. ``gained``: mask over the new blocks; ``pending``: what came along with them."""

    old: BlockStore
    new: BlockStore
    gained: Mask
    pending: Sequence[Pending] = ()

    def follow(self, part: Part) -> Part | None:
        """The part of ``part`` whose blocks stayed here with their values; None when nothing is left."""
        target = self.new.find(part.ids)
        stayed = target >= 0
        stayed[stayed] = ~self.gained[target[stayed]]  # this shard may have kept nothing, and gained nothing either
        if not stayed.any():
            return None
        if stayed.all():
            return Part(self.new, None if len(target) == len(self.new) else target, part.values)
        values = self.old.packed(part.positions).gather(np.asarray(part.values), np.flatnonzero(stayed))
        return Part(self.new, target[stayed], values)


@dataclass(eq=False, slots=True)
class _Gain:
    """A group of the epoch, cut down to the blocks that are now ours. ``positions`` in the new store."""

    group: BlockGroup
    positions: Positions
    contents: Contents | None  # from the donor
    pending: Sequence[Pending] = ()


@dataclass(eq=False, slots=True)
class _Plan:
    table: Table
    ids: Ids
    gained: Mask
    gains: list[_Gain]


class Holdings:
    """Tables of this shard. ``key``: its member key; ``progress`` is called during long copies."""

    def __init__(self, key: str, progress: Progress) -> None:
        self._key, self._progress = key, progress
        self.tables: dict[str, BlockStore] = {}
        self._bases: list[dict[str, int]] = [{}]
        self._aside: dict[tuple[str, str], Aside] = {}

    def table(self, name: str) -> BlockStore:
        if not self.tables:
            raise NotServing("this shard has no epoch yet")
        if name not in self.tables:
            raise UnknownTable(f"the job has no table {name!r}")
        return self.tables[name]

    @property
    def frozen(self) -> bool:
        return any(store.blocked and bool(store.frozen.any()) for store in self.tables.values())

    @property
    def loading(self) -> int:
        """Blocks that are not there yet."""
        return sum(int(np.count_nonzero(store.loading)) for store in self.tables.values() if store.blocked)

    @property
    def value_bytes(self) -> int:
        return sum(store.values.nbytes for store in self.tables.values())

    # --- epochs ------------------------------------------------------------------------------------------------------

    def covers(self, epoch: Epoch, job: Job) -> bool:
        """True when this epoch alone says where everything new comes from; else epochs in between are missing."""
        return all(len(self._unexplained(self._plan(table, epoch, donors=False))) == 0 for table in job.tables)

    def adopt(self, epoch: Epoch, job: Job) -> tuple[list[Load], dict[str, Relocation]]:
        """Follow an epoch. Returns what has to be loaded, and the tables whose blocks changed. Nothing changes on an error."""
        plans = [self._plan(table, epoch) for table in job.tables]
        for plan in plans:
            unexplained = self._unexplained(plan)
            if len(unexplained):
                where = f"block {unexplained[0]} of table {plan.table.name}"
                raise Internal(f"epoch {epoch.number} does not say where {where} comes from")
        relocations = {plan.table.name: self._relocated(plan) for plan in plans}
        loads = [load for plan in plans for load in self._started(plan, epoch, relocations[plan.table.name].new)]
        self.tables = {name: relocation.new for name, relocation in relocations.items()}
        self._aside = {at: aside for at, aside in self._aside.items() if aside.epoch >= epoch.number}
        return loads, {name: moved for name, moved in relocations.items() if moved.old is not moved.new}

    def _plan(self, table: Table, epoch: Epoch, donors: bool = True) -> _Plan:
        owners = epoch.owners.get(table.name)
        if owners is None or len(owners) != table.blocks:
            raise InvalidRequest(f"epoch {epoch.number} has no owners for the {table.blocks} blocks of table {table.name}")
        ids = epoch.owned(table.name, epoch.shard_index(self._key))
        plan = _Plan(table, ids, np.zeros(len(ids), np.bool_), [])
        for group in epoch.moved:
            if group.table != table.name or (group.former_owner == self._key and not epoch.rollback):
                continue
            at = positions_of(ids, group.ids)
            at = at[at >= 0]
            if len(at):
                plan.gained[at] = True
                if donors and group.source in (Source.DONOR, Source.REPLICA):
                    plan.gains.append(self._given(epoch, group, table, at, ids[at]))
                else:
                    plan.gains.append(_Gain(group, at, None))
        return plan

    def _given(self, epoch: Epoch, group: BlockGroup, table: Table, positions: Positions, ids: Ids) -> _Gain:
        aside = self._aside.get((group.former_owner, table.name))
        at = positions_of(aside.ids, ids) if aside is not None and aside.epoch == epoch.number - 1 else np.array([-1])
        if aside is None or (at < 0).any():
            what = f"blocks of table {table.name} from {group.former_owner}"
            raise Internal(f"epoch {epoch.number} moves {what} that were not received")
        pending = [cut for one in aside.pending if (cut := one.cut(table, ids)) is not None]
        return _Gain(group, positions, subset(table, aside.ids, aside.contents, at), pending)

    def _unexplained(self, plan: _Plan) -> Ids:
        held = self.tables.get(plan.table.name)
        missing = ~plan.gained if held is None else ~plan.gained & (held.find(plan.ids) < 0)
        return plan.ids[missing]

    def _relocated(self, plan: _Plan) -> Relocation:
        held = self.tables.get(plan.table.name)
        old = BlockStore(plan.table, np.empty(0, np.uint32)) if held is None else held
        if not plan.gains and np.array_equal(old.ids, plan.ids):
            old.frozen[:] = False  # a freeze ends with a newer epoch
            old.refresh()
            return Relocation(old, old, plan.gained)
        pending = [one for gain in plan.gains for one in gain.pending]
        return Relocation(old, old.carried(plan.ids, plan.gained, self._progress), plan.gained, pending)

    def _started(self, plan: _Plan, epoch: Epoch, store: BlockStore) -> list[Load]:
        loads = []
        for gain in plan.gains:
            group, at = gain.group, gain.positions
            store.unsettled[at] = True
            store.origin[at] = self._origin(group.watermark)
            if gain.contents is not None:
                store.loading[at] = 0
                store.install(at, gain.contents)
                continue
            store.loading[at] = epoch.number
            loads.append(Load(epoch.number, epoch.manifest, group.table, store.ids[at], group.source, group.object_key))
        store.refresh()
        return loads

    # --- loads, settling, moves --------------------------------------------------------------------------------------

    def wanted(self, load: Load) -> bool:
        """False when a newer epoch has moved all blocks of this load again."""
        return bool(self._waiting(load)[1].any())

    def install(self, load: Load, contents: Contents) -> None:
        """The load is there. Blocks that moved on in the meantime are left out."""
        at, waiting = self._waiting(load)
        if waiting.any():
            store = self.tables[load.table]
            store.install(at[waiting], subset(store.table, load.ids, contents, np.flatnonzero(waiting)))
            store.loading[at[waiting]] = 0
            store.refresh()

    def _waiting(self, load: Load) -> tuple[Positions, Mask]:
        store = self.tables[load.table]
        at = store.find(load.ids)
        return at, (at >= 0) & (store.loading[at] == load.epoch)

    def settle(self) -> None:
        for store in self.tables.values():
            store.unsettled[:] = False

    def freeze(self, wanted: Sequence[Part]) -> None:
        """Stop these blocks until the next epoch. Raises :class:`NotYet` while they load, or may miss what workers owe."""
        for part in wanted:
            at = np.arange(len(part.store)) if part.positions is None else part.positions
            if (part.store.loading[at] > 0).any() or part.store.unsettled[at].any():
                raise NotYet(f"blocks of table {part.store.table.name} are loading or unsettled")
        for part in wanted:
            part.store.frozen[slice(None) if part.positions is None else part.positions] = True
            part.store.refresh()

    def put_aside(self, asides: Iterable[Aside]) -> None:
        for aside in asides:
            self._aside[aside.donor, aside.table] = aside

    # --- watermarks --------------------------------------------------------------------------------------------------

    def watermark(self, origin: int, own: Mapping[str, int]) -> dict[str, int]:
        """What blocks of this origin contain, when the shard's own watermark is ``own``."""
        return merged(self._bases[origin], own)

    def forget_overtaken(self, own: Mapping[str, int], workers: Iterable[str]) -> None:
        """Blocks whose base watermark says no more than the shard's own are like all others. ``workers``: living keys."""
        alive = set(workers)
        for origin, base in enumerate(self._bases):
            if base and all(own.get(key, 0) >= push for key, push in base.items() if key in alive):
                self._bases[origin] = {}
                for store in self.tables.values():
                    store.origin[store.origin == origin] = 0

    def _origin(self, watermark: Mapping[str, int]) -> int:
        """Number of this base watermark: an equal one's, a free one, or a new one. 0 is the empty one."""
        base = dict(watermark)
        if base in self._bases:
            return self._bases.index(base) if base else 0
        if {} in self._bases[1:]:
            origin = self._bases.index({}, 1)
            self._bases[origin] = base
            return origin
        self._bases.append(base)
        return len(self._bases) - 1


def follow(part: Part, relocations: Mapping[str, Relocation]) -> Part | None:
    """:meth:`Relocation.follow` when the part's table is among those that changed."""
    relocation = relocations.get(part.store.table.name)
    return part if relocation is None else relocation.follow(part)


def subset(table: Table, ids: Ids, contents: Contents, positions: Positions) -> Contents:
    """The contents of the blocks ``ids[positions]``; no copy when these are all."""
    if len(positions) == len(ids):
        return contents
    layout: Layout = table.layout.take(ids.astype(np.int64))
    return Contents(
        layout.gather(contents.values, positions),
        {name: layout.gather(slot, positions) for name, slot in contents.slots.items()},
        None if contents.steps is None else contents.steps[positions],
        None if contents.saved is None else layout.gather(contents.saved, positions),
    )
