"""The blocks of one table that a shard owns, in flat arrays: back to back, or at :class:`Places`.

A store never changes its set of blocks: an epoch that does so makes a new one
(:meth:`BlockStore.copy_for`). So whoever still reads the old one (a pull on its way out, a distance pass)
finds its blocks where they were. Only one thread writes, and holds ``lock``, which is handed in, for each
run of blocks; who reads beside it holds it for each run that it copies out, and never sees half of a block.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scar.blocks import Array, Ids, Layout, Positions, RowNames, drop_repeats
from scar.errors import BlockOutOfRange
from scar.tables import Table
from scar_ps.core.block_arrays import BlockArrays, ChangeObserver, OnProgress, StoreRows, copy_arrays
from scar_ps.core.block_data import BlockContents, differing_values
from scar_ps.core.block_memory import BlockMemory
from scar_ps.core.pull_marks import PullMarks
from scar_ps.core.row_changes import INITIAL, UNKNOWN, RowChanges
from scar_ps.core.segments import Segments

# of values that one load brings: what is installed at once holds up everything else
LOAD_BYTES = 8 << 20
Mask = NDArray[np.bool_]
Allocate = Callable[[int, np.dtype[Any]], NDArray[Any]]
Lock = AbstractContextManager[Any]
NewLock = Callable[[], Lock]
NO_LOCK: Lock = nullcontext()


def no_lock() -> Lock:
    """Where nobody reads beside the thread that writes."""
    return NO_LOCK


@dataclass(slots=True)
class StoreSlice:
    """Some blocks of a store with packed values for them. ``positions`` None: all blocks.

    ``rows``: the values are of these rows of the store alone (ascending), at least one in each of the blocks;
    of a table with keys: of these images of keys. ``unknown_zero``: keys without a row are read as 0.
    """

    store: BlockStore
    positions: Positions | None
    values: Array | Segments
    rows: StoreRows | None = None
    unknown_zero: bool = False

    @property
    def ids(self) -> Ids:
        return self.store.ids if self.positions is None else self.store.ids[self.positions]

    @property
    def store_positions(self) -> Positions:
        """:attr:`positions`, also where these are all blocks."""
        return np.arange(len(self.store)) if self.positions is None else self.positions

    @property
    def origins(self) -> NDArray[np.int32]:
        return self.store.origin if self.positions is None else self.store.origin[self.positions]

    @property
    def layout(self) -> Layout:
        """Of the packed values."""
        if self.rows is not None:
            return Layout.even(len(self.rows), self.store.table.row_elements)
        return self.store.packed_layout(self.positions)

    def select_blocks(self, positions: Positions) -> StoreSlice:
        """The blocks at these (ascending) positions within it."""
        store = self.store
        chosen = positions if self.positions is None else self.positions[positions]
        values = np.asarray(self.values)
        if self.rows is None:
            return StoreSlice(store, chosen, self.layout.gather(values, positions))
        at = np.flatnonzero(np.isin(store.find_row_blocks(self.rows), chosen))
        return StoreSlice(store, chosen, self.layout.gather(values, at), self.rows[at])


class BlockStore(BlockArrays):
    """Values, slots, steps and saved values of the blocks ``ids`` (ascending) of ``table``.

    ``loading``: epoch whose load a block waits for, 0 when it is there. ``unsettled``: served, not saved yet.
    ``origin``: which restored watermark a block started with, 0 for none (see :mod:`scar_ps.core.ownership`).
    ``unsaved``: its values may differ from the saved ones, or from those of a copy that is being saved.
    ``changed``: the next replica of the chain does not have it as it is. ``replay_from``: the block was put
    back as it was when this clock was open, and nobody may see it before workers have sent again what they
    owe it; -1: that is done, None: for all blocks. ``before_change``: who copies what a push is about to
    change. ``row_changes``: which rows are to be saved, where rows may be saved alone; else None. ``marks``:
    where replicas keep what workers could not give back, which blocks these are; else None.
    """

    def __init__(
        self,
        table: Table,
        ids: Ids,
        lock: Lock = NO_LOCK,
        memory: BlockMemory | None = None,
        at: Positions | None = None,
    ) -> None:
        """``memory``: what its arrays are of, None: of its own; ``at``: place of each block there."""
        super().__init__(table, ids, memory or BlockMemory(table, ids), at)
        self.lock = lock
        self.steps: NDArray[np.int64] = np.zeros(len(ids), np.int64)
        self.loading: NDArray[np.int64] = np.zeros(len(ids), np.int64)
        self.frozen: Mask = np.zeros(len(ids), np.bool_)
        self.unsettled: Mask = np.zeros(len(ids), np.bool_)
        self.origin: NDArray[np.int32] = np.zeros(len(ids), np.int32)
        self.unsaved: Mask = np.zeros(len(ids), np.bool_)
        self.changed: Mask = np.zeros(len(ids), np.bool_)
        self.replay_from: NDArray[np.int64] | None = None
        self.marks: PullMarks | None = None
        self.blocked = False  # some block is loading or frozen
        marks = self.memory.marks
        self.row_changes = None if marks is None else RowChanges(self, self._view(marks, self.row_counts))
        self.before_change: list[ChangeObserver] = []
        self._where: NDArray[np.int32] = np.full(table.blocks, -1, np.int32)
        self._where[ids] = np.arange(len(ids), dtype=np.int32)

    # --- finding blocks
    # ----------------------------------------------------------------------------------------------

    def find_blocks(self, ids: Ids) -> Positions:
        """Position of each id; -1 where this shard does not own it."""
        return self._where.take(ids).astype(np.int64)

    def locate_blocks(self, ids: Ids) -> Positions | None:
        """Positions of these blocks (strictly ascending); None when they are all of them."""
        if len(ids) and int(ids[-1]) >= self.table.blocks:
            raise BlockOutOfRange(
                f"block {int(ids[-1])} is out of range, table {self.table.name} has {self.table.blocks}"
            )
        positions = self.find_blocks(ids)
        absent = positions < 0
        if absent.any():
            block = int(ids[int(absent.argmax())])
            raise BlockOutOfRange(
                f"block {block} of table {self.table.name} is not on this shard in this epoch"
            )
        return None if len(positions) == len(self) else positions

    def locate_rows(self, rows: RowNames) -> tuple[Positions | None, StoreRows]:
        """Positions of the blocks of these rows of the table (strictly ascending; None: all blocks), and
        these rows of the store.
        """
        if rows.dtype == np.uint64:
            raise BlockOutOfRange(f"rows of table {self.table.name} are named by numbers, not by keys")
        if len(rows) and int(rows[-1]) >= self.table.shape[0]:
            raise BlockOutOfRange(
                f"row {int(rows[-1])} is out of range, table {self.table.name} has {self.table.shape[0]}"
            )
        blocks = self.table.find_blocks(rows)
        found = self.find_blocks(blocks)
        if len(found) and int(found.min()) < 0:
            self.locate_blocks(drop_repeats(blocks))  # which says what is not here
        positions = drop_repeats(found)
        return None if len(positions) == len(self) else positions, self._store_rows(rows, blocks, found)

    def _store_rows(self, rows: RowNames, blocks: Ids, found: Positions) -> Positions:
        """``found``: positions of the blocks that these rows of the table are in."""
        each = self.table.cut.rows
        if each == 1:
            return found
        if each:  # but for the last block, so starts need no look into memory
            return rows + (found - blocks.astype(np.int64)) * each
        shifts: Positions = self.row_counts.starts[found] - self.table.row_offsets[blocks]
        return rows + shifts

    def find_row_blocks(self, rows: StoreRows) -> Positions:
        """Position of the block of each of these rows of the store."""
        return self.row_counts.find_blocks(rows)

    def rows_of(self, positions: Positions | None) -> StoreRows:
        """All rows of the store in these blocks, ascending."""
        if positions is None:
            return np.arange(self.row_counts.elements)
        return self.row_counts.indices(positions)

    def table_rows(self, rows: StoreRows) -> RowNames:
        """Rows of the table that these rows of the store are."""
        at = self.find_row_blocks(rows)
        starts = self.table.row_offsets[self.ids[at]] - self.row_counts.starts[at]
        return (rows.astype(np.int64, copy=False) + starts).astype(np.uint32)

    def packed_layout(self, positions: Positions | None) -> Layout:
        """Layout of these blocks, packed."""
        return self.layout if positions is None else self.layout.take(positions)

    def count_elements(self, positions: Positions | None) -> int:
        """Elements of these blocks."""
        return self.layout.elements if positions is None else self.layout.count_elements(positions)

    def count_unavailable(self, positions: Positions | None) -> int:
        """How many of these blocks are loading or frozen."""
        if not self.blocked:
            return 0
        waiting = (self.loading > 0) | self.frozen
        return int(np.count_nonzero(waiting if positions is None else waiting[positions]))

    def begin_replay(self, positions: Positions, clock: int) -> None:
        """These blocks were put back as they were when this clock was open."""
        if self.replay_from is None:
            self.replay_from = np.full(len(self), -1, np.int64)
        self.replay_from[positions] = clock

    def replay_clocks(self, positions: Positions | None) -> NDArray[np.int64]:
        """:attr:`replay_from` of these blocks."""
        if self.replay_from is None:
            return np.full(len(self) if positions is None else len(positions), -1, np.int64)
        return self.replay_from if positions is None else self.replay_from[positions]

    def count_replaying(self, positions: Positions | None) -> int:
        """How many of these blocks wait for what workers owe them."""
        return 0 if self.replay_from is None else int(np.count_nonzero(self.replay_clocks(positions) >= 0))

    def note_change(self, positions: Positions | None, rows: StoreRows | None = None) -> None:
        """These blocks (None: all), or of them these rows of the store, are not what copies hold any more."""
        at = slice(None) if positions is None else positions
        self.changed[at] = self.unsaved[at] = True
        if self.row_changes is not None:
            if rows is None:
                self.row_changes.note_blocks(at)
            else:
                self.row_changes.note_rows(rows.astype(np.int64, copy=False))
        if self.marks is not None:
            self.marks.note_change(at)

    def note_initial(self, positions: Positions) -> None:
        """These blocks are at x(0), which nobody need keep: where replicas have only what is missing."""
        if self.row_changes is not None:
            self.row_changes.begin(positions, INITIAL)
        if self.marks is not None and not self.count_replaying(positions):
            self.changed[positions] = False

    def forget_saved(self) -> None:
        """What the running checkpoint holds of the blocks is not known any more."""
        used = self.layout.elements
        if self.places is not None:
            used = self.memory.end * self.places.rows * self.table.row_elements
        self.saved[:used] = differing_values(self.values[:used])
        self.unsaved[:] = True
        if self.row_changes is not None:
            self.row_changes.baselines[:] = UNKNOWN

    def update_blocked(self) -> None:
        """Call it after ``loading`` or ``frozen`` were written."""
        self.blocked = bool(self.frozen.any() or (self.loading > 0).any())

    # --- copying
    # -----------------------------------------------------------------------------------------------------

    def freeze(self) -> BlockStore:
        """The same blocks with values that nobody changes any more, to be read without a lock."""
        frozen = copy(self)
        if self.places is None:
            frozen.values = self.values.copy()
        else:  # all of it back to back
            packed = self.copy_blocks(np.arange(len(self)))
            frozen.places = None
            frozen.values = packed.values
            frozen.slots = dict(packed.slots)
        frozen.lock = NO_LOCK
        return frozen

    def copy_blocks(self, positions: Positions) -> BlockContents:
        """Values, slots and steps of these blocks, packed."""
        slots = {
            name: self.gather(slot, self.slot_layout(name), positions) for name, slot in self.slots.items()
        }
        return BlockContents(self.gather(self.values, self.layout, positions), slots, self.steps[positions])

    def install_blocks(self, positions: Positions, contents: BlockContents) -> None:
        """Write packed contents to these blocks. Absent slots and steps start at zero."""
        saved = contents.values if contents.saved is None else contents.saved
        self.note_change(positions)
        self.scatter(self.values, self.layout, positions, contents.values)
        self.scatter(self.saved, self.layout, positions, saved)
        self.unsaved[positions] = contents.saved is not None
        for name, slot in self.slots.items():
            layout = self.slot_layout(name)
            installed = contents.slots.get(name)
            if installed is None:  # others may have been there before
                installed = np.zeros(layout.count_elements(positions), slot.dtype)
            self.scatter(slot, layout, positions, installed)
        if contents.steps is not None:
            self.steps[positions] = contents.steps

    def allocate_for(self, ids: Ids, memory: BlockMemory | None) -> BlockStore:
        """A store of zeros for ``ids`` with this one's lock."""
        return BlockStore(self.table, ids, self.lock, memory)

    def copy_for(
        self, ids: Ids, gained: Mask, progress: OnProgress, memory: BlockMemory | None = None
    ) -> BlockStore:
        """A store for ``ids`` with this one's lock and contents; what was ``gained`` (mask) is to be
        installed. ``memory``: what it is made in; in that of this store nothing is copied.
        """
        source = np.where(gained, -1, self.find_blocks(ids))
        target = np.flatnonzero(source >= 0)
        kept = slice(None) if len(target) == len(self) else source[target]  # what is at ``target`` then
        new = self._stay_in_memory(ids, target, kept) if memory is self.memory else None
        if new is None:
            usable = memory is not None and memory is not self.memory and memory.fits(ids)
            new = self.allocate_for(ids, memory if usable else None)
            copy_arrays(self, new, source, progress)
        for name in ("steps", "loading", "unsettled", "origin", "unsaved", "changed"):
            known = getattr(self, name)[kept]
            if known.any():  # a new store has zeros, and most of these are
                getattr(new, name)[target] = known
        if self.row_changes is not None and new.row_changes is not None:
            new.row_changes.follow(self.row_changes, target, kept)
        if self.marks is not None:
            new.marks = self.marks.copy_for(len(ids), kept, target)
        if self.replay_from is not None:
            new.replay_from = np.full(len(ids), -1, np.int64)
            new.replay_from[target] = self.replay_from[kept]
        new.update_blocked()
        return new

    def _stay_in_memory(self, ids: Ids, target: Positions, kept: Positions | slice) -> BlockStore | None:
        """A store in which every block that is kept has its place; None: there are too few.

        ``target``: where they are in it; ``kept``: and here.
        """
        if not self.memory.place_rows:
            return None
        found = self.memory.take_places(len(ids) - len(target))
        if found is None:
            return None
        held = np.arange(len(self)) if self.places is None else self.places.at
        at = np.full(len(ids), -1, np.int64)
        at[target] = held[kept]
        at[at < 0] = found
        new = BlockStore(self.table, ids, self.lock, self.memory, at)
        gone = np.ones(len(self), np.bool_)
        gone[kept] = False
        self.tenancy.pass_on(held[gone], new.tenancy)
        return new
