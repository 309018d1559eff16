"""Which blocks this shard has, and how they come and go with epochs.

A gained block is *loading* until its values are there, and *unsettled* until all workers have re-routed. Its
restored value may contain more pushes of a worker than this shard has seen; this *base* watermark stays with
the block (its *origin*) until the shard's own watermark has overtaken it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from scar.blocks import Ids, Positions, positions_of
from scar.errors import Internal, InvalidRequest, NotServing, UnknownTable
from scar.placement import BlockGroup, BlockSource, Epoch
from scar.tables import Job, Table
from scar_ps.core.block_arrays import OnProgress, split_runs
from scar_ps.core.block_data import (
    BlockContents,
    BlockLoad,
    IncomingBlocks,
    InheritedPush,
    make_load,
    select_contents,
)
from scar_ps.core.block_memory import BlockMemory
from scar_ps.core.block_store import LOAD_BYTES, BlockStore, Mask, NewLock, StoreSlice, no_lock
from scar_ps.core.keyed_store import make_store
from scar_ps.core.pull_marks import PullMarks
from scar_ps.core.push_sequences import merge_watermarks
from scar_ps.core.relocation import Relocation
from scar_ps.core.requests import MustWait

NO_MEMORIES: Mapping[str, BlockMemory] = {}


@dataclass(eq=False, slots=True)
class _GainedGroup:
    """A group of the epoch without the blocks of other shards. ``positions`` in the new store."""

    group: BlockGroup
    positions: Positions
    contents: BlockContents | None  # from the donor
    pushes: Sequence[InheritedPush] = ()


@dataclass(eq=False, slots=True)
class _TableChange:
    """What an epoch gives to this shard of one table."""

    table: Table
    ids: Ids
    gained: Mask
    groups: list[_GainedGroup]


class BlockOwnership:
    """Tables of this shard.

    ``key``: its member key; ``progress`` is called during long copies; ``new_lock`` makes the lock of a
    table; ``loads``: what is to be loaded and not there yet.
    """

    def __init__(self, key: str, progress: OnProgress, new_lock: NewLock = no_lock) -> None:
        self._key = key
        self._progress = progress
        self._new_lock = new_lock
        self.tables: dict[str, BlockStore] = {}
        self.loads: tuple[BlockLoad, ...] = ()
        self.any_unsettled = False
        self._base_watermarks: list[dict[str, int]] = [{}]
        self._incoming: dict[tuple[str, str], IncomingBlocks] = {}

    def get_store(self, name: str) -> BlockStore:
        if not self.tables:
            raise NotServing("this shard has no epoch yet")
        if name not in self.tables:
            raise UnknownTable(f"the job has no table {name!r}")
        return self.tables[name]

    @property
    def any_frozen(self) -> bool:
        return any(store.blocked and bool(store.frozen.any()) for store in self.tables.values())

    @property
    def loading_blocks(self) -> int:
        """Blocks that are not there yet."""
        return sum(int(np.count_nonzero(store.loading)) for store in self.tables.values() if store.blocked)

    @property
    def value_bytes(self) -> int:
        return sum(store.value_bytes for store in self.tables.values())

    # --- epochs
    # ------------------------------------------------------------------------------------------------------

    def covers_epoch(self, epoch: Epoch, job: Job) -> bool:
        """Whether this epoch alone says where everything new comes from.

        Else epochs in between are missing.
        """
        changes = [self._plan_change(table, epoch, donors=False) for table in job.tables]
        return all(len(self._unexplained_blocks(change)) == 0 for change in changes)

    def adopt_epoch(
        self, epoch: Epoch, job: Job, memories: Mapping[str, BlockMemory] = NO_MEMORIES
    ) -> tuple[list[BlockLoad], dict[str, Relocation]]:
        """Follow an epoch: what has to be loaded, and the tables that changed. An error changes nothing.
        ``memories``: by table, what the stores of those that change are made in.
        """
        changes = [self._plan_change(table, epoch) for table in job.tables]
        for change in changes:
            unexplained = self._unexplained_blocks(change)
            if len(unexplained):
                where = f"block {unexplained[0]} of table {change.table.name}"
                raise Internal(f"epoch {epoch.number} does not say where {where} comes from")
        relocations = {
            change.table.name: self._relocate_table(change, job.seed, memories.get(change.table.name))
            for change in changes
        }
        if job.strategy.missing:
            for relocation in relocations.values():
                _begin_marking(relocation.new)
        loads: list[BlockLoad] = []
        for change in changes:
            loads += self._begin_loads(change, epoch, job, relocations[change.table.name].new)
        self.tables = {name: relocation.new for name, relocation in relocations.items()}
        self.loads = tuple(filter(None, map(self._remaining_load, (*self.loads, *loads))))
        self._incoming = {at: one for at, one in self._incoming.items() if one.epoch >= epoch.number}
        return loads, {name: moved for name, moved in relocations.items() if moved.old is not moved.new}

    def _plan_change(self, table: Table, epoch: Epoch, donors: bool = True) -> _TableChange:
        owners = epoch.owners.get(table.name)
        if owners is None or len(owners) != table.blocks:
            raise InvalidRequest(
                f"epoch {epoch.number} has no owners for the {table.blocks} blocks of table {table.name}"
            )
        ids = epoch.owned(table.name, epoch.shard_index(self._key))
        change = _TableChange(table, ids, np.zeros(len(ids), np.bool_), [])
        for group in epoch.moved:
            if group.table != table.name or (group.former_owner == self._key and not epoch.rollback):
                continue
            at = positions_of(ids, group.ids)
            at = at[at >= 0]
            if len(at):
                change.gained[at] = True
                if donors and group.source in (BlockSource.DONOR, BlockSource.REPLICA):
                    change.groups.append(self._received_group(epoch, group, table, at, ids[at]))
                else:
                    change.groups.append(_GainedGroup(group, at, None))
        return change

    def _received_group(
        self, epoch: Epoch, group: BlockGroup, table: Table, positions: Positions, ids: Ids
    ) -> _GainedGroup:
        incoming = self._incoming.get((group.former_owner, table.name))
        at = (
            positions_of(incoming.ids, ids)
            if incoming is not None and incoming.epoch == epoch.number - 1
            else np.array([-1])
        )
        if incoming is None or (at < 0).any():
            what = f"blocks of table {table.name} from {group.former_owner}"
            raise Internal(f"epoch {epoch.number} moves {what} that were not received")
        pushes = [part for push in incoming.pushes if (part := push.select_blocks(table, ids)) is not None]
        contents = select_contents(table, incoming.ids, incoming.contents, at)
        return _GainedGroup(group, positions, contents, pushes)

    def _unexplained_blocks(self, change: _TableChange) -> Ids:
        held = self.tables.get(change.table.name)
        missing = ~change.gained if held is None else ~change.gained & (held.find_blocks(change.ids) < 0)
        return change.ids[missing]

    def _relocate_table(self, change: _TableChange, seed: int, memory: BlockMemory | None) -> Relocation:
        old = self.tables.get(change.table.name)
        if old is None:
            old = make_store(change.table, np.empty(0, np.uint32), self._new_lock(), seed)
        if not change.groups and np.array_equal(old.ids, change.ids):
            old.frozen[:] = False  # a freeze ends with a newer epoch
            old.update_blocked()
            return Relocation(old, old, change.gained)
        pushes = [push for gained in change.groups for push in gained.pushes]
        new = old.copy_for(change.ids, change.gained, self._progress, memory)
        return Relocation(old, new, change.gained, pushes)

    def _begin_loads(
        self, change: _TableChange, epoch: Epoch, job: Job, store: BlockStore
    ) -> list[BlockLoad]:
        loads = []
        for gained in change.groups:
            group = gained.group
            at = gained.positions
            store.unsettled[at] = True
            store.origin[at] = self._number_watermark(group.watermark)
            restored = group.source is not BlockSource.DONOR
            pushed = epoch.failure or group.former_owner  # else nobody has pushed to them
            if job.consistency == "bsp" and restored and pushed:  # what is owed is of closed clocks
                store.begin_replay(at, group.clock)
            if gained.contents is not None:
                store.loading[at] = 0
                store.install_blocks(at, gained.contents)
                continue
            store.loading[at] = epoch.number
            pieces = split_runs(store.packed_layout(at), LOAD_BYTES // store.table.dtype.itemsize)
            loads += [make_load(epoch, group, store.ids[at[start:stop]]) for start, stop in pieces]
        self.any_unsettled |= bool(change.groups)
        store.update_blocked()
        return loads

    # --- loads, settling, migration
    # ----------------------------------------------------------------------------------

    def install_load(self, load: BlockLoad, contents: BlockContents) -> None:
        """The load is there. Blocks that moved on in the meantime are left out."""
        at, waiting = self._waiting_blocks(load)
        store = self.tables[load.table]
        if waiting.any():
            if not waiting.all():
                contents = select_contents(store.table, load.ids, contents, np.flatnonzero(waiting))
                at = at[waiting]
            store.install_blocks(at, contents)
            store.loading[at] = 0
            if load.source is BlockSource.INITIAL:
                store.note_initial(at)
        others = [one for one in self.loads if one is not load]
        self.loads = tuple(
            one for one in others if not _may_share(one, load) or self._remaining_load(one) is not None
        )
        if not any(one.table == load.table for one in self.loads):  # each waits for some block
            store.update_blocked()

    def _remaining_load(self, load: BlockLoad) -> BlockLoad | None:
        """What still waits for this load; None: nothing."""
        waiting = self._waiting_blocks(load)[1]
        if waiting.all():
            return load
        return replace(load, ids=load.ids[waiting]) if waiting.any() else None

    def _waiting_blocks(self, load: BlockLoad) -> tuple[Positions, Mask]:
        store = self.tables[load.table]
        at = store.find_blocks(load.ids)
        return at, (at >= 0) & (store.loading[at] == load.epoch)

    def settle_blocks(self) -> None:
        for store in self.tables.values():
            store.unsettled[:] = False
        self.any_unsettled = False

    @property
    def any_replaying(self) -> bool:
        return any(store.count_replaying(None) for store in self.tables.values())

    def end_replay(self) -> None:
        """Everything that workers owed is applied, or waits for its clock."""
        for store in self.tables.values():
            store.replay_from = None

    def freeze_blocks(self, wanted: Sequence[StoreSlice]) -> None:
        """Stop these blocks until the next epoch.

        Raises :class:`MustWait` while they load, or may miss what workers owe.
        """
        for part in wanted:
            at = np.arange(len(part.store)) if part.positions is None else part.positions
            if (part.store.loading[at] > 0).any() or part.store.unsettled[at].any():
                raise MustWait(f"blocks of table {part.store.table.name} are loading or unsettled")
        for part in wanted:
            part.store.frozen[slice(None) if part.positions is None else part.positions] = True
            part.store.update_blocked()

    def keep_incoming(self, incoming: Iterable[IncomingBlocks]) -> None:
        """Blocks for the next epoch."""
        for blocks in incoming:
            self._incoming[blocks.donor, blocks.table] = blocks

    # --- watermarks
    # --------------------------------------------------------------------------------------------------

    def watermark_of(self, origin: int, own: Mapping[str, int]) -> dict[str, int]:
        """What blocks of this origin contain, when the shard's own watermark is ``own``."""
        return merge_watermarks(self._base_watermarks[origin], own)

    def contents_of(self, part: StoreSlice, own: Mapping[str, int]) -> Mapping[str, int] | None:
        """What these blocks contain, when the shard's own watermark is ``own``. None: not all the same."""
        if not any(self._base_watermarks):
            return own
        found = np.unique(part.origins)
        return self.watermark_of(int(found[0]), own) if len(found) == 1 else None

    def forget_saved(self) -> None:
        """Count every block as changed until it is saved again.

        What the store holds is older than was thought.
        """
        for store in self.tables.values():
            store.forget_saved()

    def forget_overtaken(self, own: Mapping[str, int], workers: Iterable[str]) -> None:
        """Blocks whose base watermark says no more than the shard's own are like all others. ``workers``:
        living keys.
        """
        alive = set(workers)
        for origin, base in enumerate(self._base_watermarks):
            if base and all(own.get(key, 0) >= push for key, push in base.items() if key in alive):
                self._base_watermarks[origin] = {}
                for store in self.tables.values():
                    store.origin[store.origin == origin] = 0
        while len(self._base_watermarks) > 1 and not self._base_watermarks[-1]:
            self._base_watermarks.pop()

    def _number_watermark(self, watermark: Mapping[str, int]) -> int:
        """Number of this base watermark: an equal one's, a free one, or a new one. 0 is the empty one."""
        base = dict(watermark)
        if base in self._base_watermarks:
            return self._base_watermarks.index(base) if base else 0
        if {} in self._base_watermarks[1:]:
            origin = self._base_watermarks.index({}, 1)
            self._base_watermarks[origin] = base
            return origin
        self._base_watermarks.append(base)
        return len(self._base_watermarks) - 1


def _may_share(one: BlockLoad, other: BlockLoad) -> bool:
    """Whether blocks may be in both: quick, since it is asked of each pair of the pieces of a group."""
    return one.table == other.table and one.ids[0] <= other.ids[-1] and other.ids[0] <= one.ids[-1]


def _begin_marking(store: BlockStore) -> None:
    """Note from now on which blocks workers could give back."""
    if store.marks is None:
        rule = store.table.rule
        store.marks = PullMarks(len(store), holdable=not (rule.slots or rule.counts_steps))
