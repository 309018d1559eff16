"""The blocks of one table that a shard owns, back to back in flat arrays, and what is done to many of them at once.

A store never changes its set of blocks: an epoch that does so makes a new one (:meth:`BlockStore.carried`). So whoever still
reads the old one (a pull on its way out, a distance pass) reads consistent memory. Only the apply thread writes; ``lock`` is
held for each run of blocks while it is written or copied out, so that a reader never sees half of a block.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from scar.blocks import Array, Ids, Layout, Positions
from scar.errors import BlockOutOfRange
from scar.tables import Rule, Table
from scar_ps import rules
from scar_ps.segments import Segments

RUN_ELEMENTS = 1 << 18  # about 1 MiB: temporaries stay in the cache, a lock is held for a quarter of a millisecond
Mask = NDArray[np.bool_]
Progress = Callable[[], None]


@dataclass(slots=True)
class Contents:
    """Packed contents of some blocks: values and slots (flat), steps (one per block), what the running checkpoint holds."""

    values: Array
    slots: Mapping[str, Array] = field(default_factory=dict)
    steps: NDArray[np.int64] | None = None
    saved: Array | None = None  # absent: the same as the values

    @property
    def bytes(self) -> int:
        """Values and slots."""
        return self.values.nbytes * (1 + len(self.slots))


@dataclass(slots=True)
class Part:
    """Some blocks of a store with packed values for them. ``positions`` None: all blocks."""

    store: BlockStore
    positions: Positions | None
    values: Array | Segments

    @property
    def ids(self) -> Ids:
        return self.store.ids if self.positions is None else self.store.ids[self.positions]


class BlockStore:
    """Values, slots, steps and saved values of the blocks ``ids`` (ascending) of ``table``.

    ``loading``: epoch whose load a block waits for, 0 when it is there. ``unsettled``: served, not saved yet.
    ``origin``: which restored watermark a block started with, 0 for none (see :mod:`scar_ps.holdings`). ``changed``: the next
    replica of the chain does not have it as it is.
    """

    def __init__(self, table: Table, ids: Ids) -> None:
        self.table, self.ids, self.lock = table, ids, Lock()
        self.layout = Layout(table.layout.sizes[ids])
        self.values: Array = np.zeros(self.layout.elements, table.dtype)
        self.saved: Array = np.zeros(self.layout.elements, table.dtype)
        self.slots: dict[str, Array] = {name: np.zeros(self.layout.elements, table.dtype) for name in table.rule.slots}
        self.steps: NDArray[np.int64] = np.zeros(len(ids), np.int64)
        self.loading: NDArray[np.int64] = np.zeros(len(ids), np.int64)
        self.frozen: Mask = np.zeros(len(ids), np.bool_)
        self.unsettled: Mask = np.zeros(len(ids), np.bool_)
        self.origin: NDArray[np.int32] = np.zeros(len(ids), np.int32)
        self.changed: Mask = np.zeros(len(ids), np.bool_)
        self.blocked = False  # some block is loading or frozen
        self._where: NDArray[np.int32] = np.full(table.blocks, -1, np.int32)
        self._where[ids] = np.arange(len(ids), dtype=np.int32)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def bytes(self) -> int:
        """Values and slots."""
        return self.values.nbytes * (1 + len(self.slots))

    # --- finding blocks ----------------------------------------------------------------------------------------------

    def find(self, ids: Ids) -> Positions:
        """Position of each id; -1 where this shard does not own it."""
        return self._where[ids].astype(np.int64)

    def locate(self, ids: Ids) -> Positions | None:
        """Positions of these blocks (strictly ascending); None when they are all of them."""
        if len(ids) and int(ids[-1]) >= self.table.blocks:
            raise BlockOutOfRange(f"block {int(ids[-1])} is out of range, table {self.table.name} has {self.table.blocks}")
        positions = self.find(ids)
        absent = positions < 0
        if absent.any():
            block = int(ids[int(absent.argmax())])
            raise BlockOutOfRange(f"block {block} of table {self.table.name} is not on this shard in this epoch")
        return None if len(positions) == len(self) else positions

    def packed(self, positions: Positions | None) -> Layout:
        """Layout of these blocks, packed."""
        return self.layout if positions is None else self.layout.take(positions)

    def unavailable(self, positions: Positions | None) -> int:
        """How many of these blocks are loading or frozen."""
        if not self.blocked:
            return 0
        waiting = (self.loading > 0) | self.frozen
        return int(np.count_nonzero(waiting if positions is None else waiting[positions]))

    def refresh(self) -> None:
        """To be called after ``loading`` or ``frozen`` were written."""
        self.blocked = bool(self.frozen.any() or (self.loading > 0).any())

    # --- changing values ---------------------------------------------------------------------------------------------

    def apply(self, positions: Positions | None, pushed: Array | Segments, progress: Progress, rate: float = 1.0) -> None:
        """One step of the table's rule on these blocks. ``pushed`` is packed and has the table's dtype; ``rate``: factor of the
        learning rate."""
        rule = rules.slowed(self.table.rule, rate)
        layout, first = self.packed(positions), 0
        self.changed[slice(None) if positions is None else positions] = True
        if positions is not None and len(positions) and int(positions[-1] - positions[0]) == len(positions) - 1:
            first, positions = int(positions[0]), None  # neighbours: no need to copy them out and back
        with np.errstate(all="ignore"):
            for start, stop in runs(layout, RUN_ELEMENTS):
                piece = pushed[layout.starts[start] : layout.starts[stop]]
                with self.lock:
                    if positions is None:
                        self._apply_run(rule, first + start, first + stop, piece)
                    else:
                        self._apply_scattered(rule, positions[start:stop], piece)
                progress()

    def _apply_run(self, rule: Rule, start: int, stop: int, pushed: Array) -> None:
        span = slice(int(self.layout.starts[start]), int(self.layout.starts[stop]))
        slots = {name: self._shaped(slot[span]) for name, slot in self.slots.items()}
        counts = self._counted(slice(start, stop)) if rules.counts_steps(rule) else 1
        rules.step(rule, self._shaped(self.values[span]), self._shaped(pushed), slots, counts)

    def _apply_scattered(self, rule: Rule, positions: Positions, pushed: Array) -> None:
        layout = self.layout
        values = layout.gather(self.values, positions)
        slots = {name: layout.gather(slot, positions) for name, slot in self.slots.items()}
        shaped = {name: self._shaped(slot) for name, slot in slots.items()}
        counts = self._counted(positions) if rules.counts_steps(rule) else 1
        rules.step(rule, self._shaped(values), self._shaped(pushed), shaped, counts)
        layout.scatter(self.values, positions, values)
        for name, slot in slots.items():
            layout.scatter(self.slots[name], positions, slot)

    def _shaped(self, flat: Array) -> Array:
        return flat.reshape(-1, self.layout.width) if self.layout.width else flat

    def _counted(self, where: slice | Positions) -> rules.Counts:
        self.steps[where] += 1
        counts = self.steps[where]
        if int(counts.min()) == int(counts.max()):
            return int(counts[0])
        return counts[:, None] if self.layout.width else np.repeat(counts, self.layout.sizes[where])

    # --- copying -----------------------------------------------------------------------------------------------------

    def copy(self, positions: Positions) -> Contents:
        """Values, slots and steps of these blocks, packed."""
        slots = {name: self.layout.gather(slot, positions) for name, slot in self.slots.items()}
        return Contents(self.layout.gather(self.values, positions), slots, self.steps[positions])

    def install(self, positions: Positions, contents: Contents) -> None:
        """Write packed contents to these blocks. Absent slots and steps start at zero."""
        saved = contents.values if contents.saved is None else contents.saved
        self.changed[positions] = True
        self.layout.scatter(self.values, positions, contents.values)
        self.layout.scatter(self.saved, positions, saved)
        for name, slot in contents.slots.items():
            self.layout.scatter(self.slots[name], positions, slot)
        if contents.steps is not None:
            self.steps[positions] = contents.steps

    def carried(self, ids: Ids, gained: Mask, progress: Progress) -> BlockStore:
        """A store for ``ids`` that starts with this one's contents, except the blocks that were ``gained`` (mask over ids)."""
        new = BlockStore(self.table, ids)
        source = self.find(ids)
        target = np.flatnonzero((source >= 0) & ~gained)
        source = source[target]
        flats = [(new.values, self.values), (new.saved, self.saved)]
        flats += [(new.slots[name], self.slots[name]) for name in self.slots]
        for start, stop in runs(new.layout.take(target), RUN_ELEMENTS):
            for written, read in flats:
                new.layout.scatter(written, target[start:stop], self.layout.gather(read, source[start:stop]))
            progress()
        new.steps[target], new.loading[target] = self.steps[source], self.loading[source]
        new.unsettled[target], new.origin[target] = self.unsettled[source], self.origin[source]
        new.changed[target] = self.changed[source]
        return new


def runs(layout: Layout, elements: int) -> list[tuple[int, int]]:
    """Ranges of whole blocks with about ``elements`` elements each; a larger block is a run of its own."""
    if not len(layout):
        return []
    if layout.width:
        edges = np.arange(0, len(layout), max(1, elements // layout.width))
    else:
        marks = np.arange(0, layout.elements, elements)
        edges = np.unique(np.searchsorted(layout.starts, marks, side="right") - 1)
    return list(pairwise([*edges.tolist(), len(layout)]))
