"""The blocks of a table whose rows are given to keys: which row a key has, who gets one, and who loses it.

A block has a fixed number of rows. Which key each has, and in which clock it was pushed to last, is kept in
slots, so it is saved, moved, replicated and lost with the block. Rows are given when a push is applied, in
the order of keys: the same pushes make the same blocks. Pulls change nothing (docs/adr/021).
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass

import numpy as np

from scar.blocks import Array, Ids, Positions, RowNames, drop_repeats
from scar.errors import BlockOutOfRange
from scar.keyed_rows import KEY_SLOT, USED_SLOT, KeyImages, block_of_images, draw_rows, pack_stored, row_seed
from scar.row_copies import gather_rows
from scar.tables import Table
from scar_ps.core.block_arrays import RUN_ELEMENTS, OnProgress, StoreRows, split_runs
from scar_ps.core.block_data import BlockContents
from scar_ps.core.block_memory import BlockMemory
from scar_ps.core.block_store import NO_LOCK, BlockStore, Lock, Mask
from scar_ps.core.key_index import KeyIndex
from scar_ps.core.key_sightings import count_sightings
from scar_ps.core.update_rules import announce_change

CHECKS_A_LIFE = 8  # rows are looked through for old ones so often in the time of the largest age


@dataclass(slots=True)
class KeyTally:
    """What became of keys, since the process started: as ``KeyedRows`` in proto/scar/v1/ps.proto has it."""

    created: int = 0
    evicted: int = 0
    expired: int = 0
    unadmitted: int = 0
    refused: int = 0


class KeyedBlockStore(BlockStore):
    """In place of rows, callers have ascending images of keys (:mod:`scar.keyed_rows`)."""

    def __init__(
        self, table: Table, ids: Ids, lock: Lock = NO_LOCK, seed: int = 0, tally: KeyTally | None = None
    ) -> None:
        super().__init__(table, ids, lock)
        assert table.keys is not None
        self.policy = table.keys
        self.tally = tally or KeyTally()
        self.rows_of_block = table.shape[0] // table.blocks
        self._seed = seed
        self._index = KeyIndex()
        self._expired_at = 0  # clock up to which rows were looked through for old ones
        # of each block: rows from its first one on that were given to keys
        self._given = np.zeros(len(ids), np.int64)
        self._live = np.zeros(len(ids), np.int64)  # of each block: rows that keys have now

    @property
    def keys(self) -> KeyImages:
        """uint64[rows]: the image of each row's key."""
        return self.slots[KEY_SLOT].view(np.uint64)

    @property
    def used(self) -> KeyImages:
        """uint64[rows]: the clock after the last push; 0: no key has the row."""
        return self.slots[USED_SLOT].view(np.uint64)

    @property
    def live_rows(self) -> int:
        """Rows that keys have."""
        return int(self._live.sum())

    # --- names of rows
    # ----------------------------------------------------------------------------------------------

    def locate_rows(self, rows: RowNames) -> tuple[Positions | None, RowNames]:
        """Positions of the blocks of these keys, and the keys."""
        if rows.dtype != np.uint64:
            raise BlockOutOfRange(f"rows of table {self.table.name} are named by keys")
        return self.locate_blocks(drop_repeats(self.table.find_blocks(rows))), rows

    def find_row_blocks(self, rows: StoreRows) -> Positions:
        """Position of the block of each of these keys."""
        return self.find_blocks(block_of_images(rows.astype(np.uint64, copy=False), self.table.blocks))

    def rows_of(self, positions: Positions | None) -> RowNames:
        """Whole blocks are never pushed: none."""
        return super().rows_of(positions)[:0].astype(np.uint64)

    def table_rows(self, rows: StoreRows) -> RowNames:
        return rows.astype(np.uint64, copy=False)

    # --- reading
    # ----------------------------------------------------------------------------------------------------

    def read_rows(self, rows: StoreRows, unknown_zero: bool) -> Array:
        """A copy of the rows of these keys, packed. A key without a row has x(0), or zeros."""
        images = rows.astype(np.uint64, copy=False)
        width = self.table.row_elements
        with self.lock:
            at = self._index.find_rows(images, self.keys, self.used)
            values = gather_rows(self.values, width, np.maximum(at, 0)).reshape(-1, width)
        absent = np.flatnonzero(at < 0)
        if len(absent):
            values[absent] = 0 if unknown_zero else self.initial_rows(images[absent]).reshape(-1, width)
        return values.reshape(-1)

    def stored_rows(self, positions: Positions) -> Array:
        """The rows of these blocks with whose they are, packed, as ``Table.stored`` has them."""
        values = self.layout.gather(self.values, positions).reshape(-1, self.table.row_elements)
        keys, used = (self.row_counts.gather(one, positions) for one in (self.keys, self.used))
        return pack_stored(values, keys.astype(np.uint64), used.astype(np.uint64)).reshape(-1)

    def initial_rows(self, images: KeyImages) -> Array:
        """x(0) of the rows of these keys, packed."""
        return draw_rows(self.table.init, self._row_seed, images, self.table.row_elements, self.table.dtype)

    @property
    def _row_seed(self) -> int:
        return row_seed(self._seed, self.table.name)

    def freeze(self) -> BlockStore:
        frozen = super().freeze()
        assert isinstance(frozen, KeyedBlockStore)
        own = {name: self.slots[name].copy() for name in (KEY_SLOT, USED_SLOT)}
        frozen.slots = {**self.slots, **own}
        frozen._index = copy(self._index)
        return frozen

    # --- rows come and go
    # -------------------------------------------------------------------------------------------

    def touch_rows(self, images: KeyImages, clock: int, progress: OnProgress) -> Positions:
        """The row of each of these keys (ascending), which was pushed to in this clock; -1: it gets none."""
        rows = np.empty(len(images), np.int64)
        for first, last in self._runs(len(images)):
            found = self._index.find_rows(images[first:last], self.keys, self.used)
            known = found[found >= 0]
            self._announce_rows(known)
            with self.lock:
                self.used[known] = np.maximum(self.used[known], clock + 1)
            rows[first:last] = found
            progress()
        new = np.flatnonzero(rows < 0)
        if len(new) and self.policy.admit_after > 1:
            admitted = count_sightings(self, images[new], clock)
            self.tally.unadmitted += len(new) - int(np.count_nonzero(admitted))
            new = new[admitted]
        for first, last in self._runs(len(new)):
            some = new[first:last]
            rows[some] = self._create_rows(images[some], clock)
            progress()
        return rows

    def _runs(self, count: int) -> list[tuple[int, int]]:
        step = max(1, RUN_ELEMENTS // self.table.row_elements)
        return [(first, min(first + step, count)) for first in range(0, count, step)]

    def _create_rows(self, images: KeyImages, clock: int) -> Positions:
        rows = self._choose_rows(self.find_row_blocks(images), clock)
        got = rows >= 0
        self.tally.refused += len(images) - int(np.count_nonzero(got))
        mine = images[got]
        at = rows[got]
        values = self.initial_rows(mine)
        self._announce_rows(at)
        with self.lock:
            free = self.used[at] == 0
            self._live += np.bincount(at[free] // self.rows_of_block, minlength=len(self))
            self.tally.evicted += len(at) - int(np.count_nonzero(free))
            self.tally.created += len(at)
            self.keys[at] = mine
            self.used[at] = clock + 1
            self._write_rows(at, values)
            self._index.add_rows(mine, at, self.keys, self.used)
        return rows

    def _announce_rows(self, at: Positions) -> None:
        """These rows, in any order, are about to change."""
        if self.row_changes is not None:
            self.row_changes.note_rows(at)
        if self.before_change and len(at):
            announce_change(self, np.sort(at), by_row=True)

    def _write_rows(self, at: Positions, values: Array) -> None:
        """Rows without a history: what would come back for them is what they hold."""
        rows = values.reshape(-1, self.table.row_elements)
        self.values.reshape(-1, rows.shape[1])[at] = rows
        self.saved.reshape(-1, rows.shape[1])[at] = rows
        for name in self.table.rule.slots:
            self.slots[name].reshape(-1, self.table.slot_width(name))[at] = 0

    def _choose_rows(self, blocks: Positions, clock: int) -> Positions:
        """A row for each new key, of these blocks (ascending positions, with repeats); -1: there is none."""
        chosen, firsts, counts = np.unique(blocks, return_index=True, return_counts=True)
        rank = np.arange(len(blocks)) - np.repeat(firsts, counts)
        given = self._given[chosen]
        fits = given + counts <= self.rows_of_block
        self._given[chosen[fits]] += counts[fits]
        rows = blocks * self.rows_of_block + np.repeat(given, counts) + rank
        if not fits.all():
            full = np.repeat(~fits, counts)
            most = int(counts[~fits].max())
            rows[full] = self._reuse_rows(chosen[~fits], counts[~fits], rank[full], most, clock)
        return rows

    def _reuse_rows(
        self, blocks: Positions, counts: Positions, rank: Positions, most: int, clock: int
    ) -> Positions:
        """Of blocks whose rows were all given once: free rows first, then those unused for longest."""
        each = max(1, RUN_ELEMENTS // self.rows_of_block)
        candidates = [
            self._oldest_rows(blocks[first : first + each], most) for first in range(0, len(blocks), each)
        ]
        self._given[blocks] = self.rows_of_block
        width = min(most, self.rows_of_block)
        which = np.repeat(np.arange(len(blocks)), counts)
        rows = np.concatenate(candidates)[which, np.minimum(rank, width - 1)]
        used = self.used[rows]
        may_go = used < clock + 1 if self.policy.evict == "lru" else used == 0
        return np.where((rank < width) & may_go, rows, -1)

    def _oldest_rows(self, blocks: Positions, most: int) -> Positions:
        """int64[blocks, most]: rows, those unused for longest first."""
        used = self.used.reshape(-1, self.rows_of_block)[blocks]
        order = np.argsort(used, axis=1, kind="stable")[:, :most]
        return order + blocks[:, None] * self.rows_of_block

    def expire_rows(self, clock: int) -> None:
        """Take their rows from keys that were not pushed for too long, as this clock begins."""
        due = self._due_clock(clock)
        if due > self._expired_at:
            self._expired_at = due
            self._expire_blocks(due, (self.loading == 0) & ~self.frozen)

    def expire_replayed(self, clock: int) -> None:
        """The same of the blocks that wait for what workers owe them: their clocks are done again."""
        due = self._due_clock(clock)
        if due > 0:
            self._expire_blocks(due, self.replay_clocks(None) >= 0)

    def _due_clock(self, clock: int) -> int:
        """Clock up to which rows are looked through for old ones as this one begins; 0: none is too old."""
        age = self.policy.max_age
        return clock - clock % max(1, age // CHECKS_A_LIFE) if age else 0

    def _expire_blocks(self, due: int, chosen: Mask) -> None:
        age = np.uint64(self.policy.max_age)
        for first, last in split_runs(self.row_counts, RUN_ELEMENTS):
            used = self.used[first * self.rows_of_block : last * self.rows_of_block]
            old = np.flatnonzero((used > 0) & (used + age <= due)) + first * self.rows_of_block
            old = old[chosen[old // self.rows_of_block]]
            if len(old):
                self._forget_rows(old)

    def _forget_rows(self, rows: Positions) -> None:
        self._announce_rows(rows)
        with self.lock:
            self.used[rows] = 0
            self._write_rows(rows, np.zeros(len(rows) * self.table.row_elements, self.table.dtype))
        gone = np.bincount(rows // self.rows_of_block, minlength=len(self))
        self._live -= gone
        self.changed[gone > 0] = self.unsaved[gone > 0] = True
        self.tally.expired += len(rows)

    # --- blocks come and go
    # -----------------------------------------------------------------------------------------

    def install_blocks(self, positions: Positions, contents: BlockContents) -> None:
        super().install_blocks(positions, contents)
        if KEY_SLOT in contents.slots:
            self._index_blocks(positions)

    def note_initial(self, positions: Positions) -> None:
        """Given rows are not as they were given any more: their age was renewed."""
        super().note_initial(positions)
        if self.row_changes is not None and self.table.init.kind == "given":
            self.row_changes.note_blocks(positions)

    def allocate_for(self, ids: Ids, _memory: BlockMemory | None) -> BlockStore:
        return KeyedBlockStore(self.table, ids, self.lock, self._seed, self.tally)

    def copy_for(
        self, ids: Ids, gained: Mask, progress: OnProgress, memory: BlockMemory | None = None
    ) -> BlockStore:
        new = super().copy_for(ids, gained, progress, memory)
        assert isinstance(new, KeyedBlockStore)
        new._expired_at = self._expired_at
        new._index_blocks(np.arange(len(ids)), progress)
        return new

    def _index_blocks(self, positions: Positions, progress: OnProgress = lambda: None) -> None:
        """Find out which keys these (ascending) blocks have."""
        each = max(1, RUN_ELEMENTS // self.rows_of_block)
        for first in range(0, len(positions), each):
            blocks = positions[first : first + each]
            used = self.used.reshape(-1, self.rows_of_block)[blocks] > 0
            last = self.rows_of_block - np.argmax(used[:, ::-1], axis=1)
            self._live[blocks] = used.sum(axis=1)
            self._given[blocks] = np.where(used.any(axis=1), last, 0)
            if used.any():
                keys = self.keys.reshape(-1, self.rows_of_block)[blocks]
                order = np.lexsort((keys, ~used), axis=1)
                live = np.arange(self.rows_of_block) < used.sum(axis=1)[:, None]
                rows = (order + blocks[:, None] * self.rows_of_block)[live]
                with self.lock:
                    self._index.add_rows(self.keys[rows], rows, self.keys, self.used)
            progress()


def make_store(table: Table, ids: Ids, lock: Lock, seed: int) -> BlockStore:
    """A store for the blocks ``ids`` of a table. ``seed``: the job's."""
    if table.keys is None:
        return BlockStore(table, ids, lock)
    return KeyedBlockStore(table, ids, lock, seed)


def renew_rows(table: Table, contents: BlockContents, clock: int) -> BlockContents:
    """Rows that come back from the running checkpoint are as old as their block was when it was saved: what
    was pushed to since is not known, and nothing shall go for that.
    """
    if table.keys is None or USED_SLOT not in contents.slots:
        return contents
    used = contents.slots[USED_SLOT].view(np.uint64).copy()
    blocks = used.reshape(-1, table.shape[0] // table.blocks)
    newest = blocks.max(axis=1, keepdims=True)
    blocks += np.where((blocks > 0) & (newest < clock), np.uint64(clock) - np.minimum(newest, clock), 0)
    slots = {**contents.slots, USED_SLOT: used.view(table.dtype)}
    return BlockContents(contents.values, slots, contents.steps, contents.saved)
