"""Which rows of a block have changed since it was saved whole, so that a round may save these alone.

The object that has the whole block is its *baseline*; x(0) is one, too, which needs no object. Rows that have
changed since then are saved together each time, those that an earlier round has saved as well: so a block
comes back from two objects at most, whatever the number of rounds (docs/adr/029).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from scar.blocks import Array, Layout, Positions
from scar_ps.core.block_arrays import BlockArrays
from scar_runtime.checkpoint.manifest import ObjectRef

RowFlags = NDArray[np.bool_]
Baselines = NDArray[np.int32]

UNKNOWN = 0  # only the whole block can be saved
SAVING = 1  # the whole block is being saved
INITIAL = 2  # it was at x(0)
FIRST_OBJECT = 3  # numbers of objects begin here


@dataclass(frozen=True, eq=False)
class CopiedChanges:
    """Which rows of a copy are to be saved: all of a block whose number in ``baselines`` is
    :data:`UNKNOWN`; of the others those in ``changed``, which has the rows of all blocks of the copy.

    ``objects``: what those numbers are; None: x(0).
    """

    baselines: Baselines
    changed: RowFlags
    objects: Mapping[int, ObjectRef | None]


class ChangeObserver(Protocol):
    """Hears what is about to change, by ascending positions."""

    def preserve_blocks(self, positions: Positions) -> None: ...

    def preserve_rows(self, rows: Positions) -> None: ...


class RowChanges:
    """Of the blocks of a store, by their positions; it hears of changes before they happen.

    ``baselines``: number of that of each block. ``changed``: a flag for each row of its memory, which says
    nothing where that is :data:`UNKNOWN`.
    """

    def __init__(self, blocks: BlockArrays, changed: Array) -> None:
        self._blocks = blocks
        self.changed = changed
        self.baselines: Baselines = np.full(len(blocks), UNKNOWN, np.int32)
        self._spent: NDArray[np.int64] = np.zeros(len(blocks), np.int64)  # rows saved since the baseline

    def preserve_blocks(self, positions: Positions) -> None:
        """These blocks are about to change as a whole."""
        self.baselines[positions] = UNKNOWN

    def preserve_rows(self, rows: Positions) -> None:
        """These rows of the store are about to change."""
        self.changed[self._blocks.find_in_memory(rows)] = True

    def begin(self, positions: Positions, baseline: int) -> None:
        """These blocks are as this baseline has them."""
        self.baselines[positions] = baseline
        self._spent[positions] = 0
        layout = self._blocks.row_counts
        nothing = np.zeros(layout.count_elements(positions), np.bool_)
        self._blocks.scatter(self.changed, layout, positions, nothing)

    def follow(self, old: RowChanges, target: Positions, kept: Positions | slice) -> None:
        """What is known of the blocks of a former store: those at ``kept`` are at ``target`` here."""
        self.baselines[target] = old.baselines[kept]
        self._spent[target] = old._spent[kept]
        if self._blocks.memory is not old._blocks.memory and len(target):
            at = np.arange(len(old._blocks)) if isinstance(kept, slice) else kept
            flags = old._blocks.gather(old.changed, old._blocks.row_counts, at)
            self._blocks.scatter(self.changed, self._blocks.row_counts, target, flags)

    def begin_copy(
        self, positions: Positions, objects: Mapping[int, ObjectRef | None]
    ) -> CopiedChanges | None:
        """These blocks are copied, to be saved as they are. ``objects``: baselines that may be used. None:
        all blocks are to be saved whole.

        A block is saved whole once what its changes have taken since is as much.
        """
        usable = np.isin(self.baselines[positions], list(objects))
        rows = self._blocks.row_counts.take(positions)
        some = np.flatnonzero(usable)
        if not len(some):
            self.begin(positions, SAVING)
            return None
        kept = self._blocks.gather(self.changed, self._blocks.row_counts, positions[some])
        flags: RowFlags = kept.astype(np.bool_, copy=False)
        counts = count_flags(flags, rows.take(some))
        spent = self._spent[positions[some]] + counts
        alone = spent < rows.sizes[some]
        self._spent[positions[some[alone]]] = spent[alone]
        usable[some] = alone
        self.begin(positions[~usable], SAVING)
        if not alone.any():
            return None
        changed = flags
        if len(some) < len(positions):
            changed = np.zeros(rows.elements, np.bool_)
            rows.scatter(changed, some, flags)
        return CopiedChanges(np.where(usable, self.baselines[positions], UNKNOWN), changed, objects)

    def end_copy(self, positions: Positions, baseline: int) -> bool:
        """The round is committed: those of these blocks that were saved whole, and not pushed to as a whole
        since, have it as their baseline. True: there are such blocks.
        """
        saved = positions[self.baselines[positions] == SAVING]
        self.baselines[saved] = baseline
        return len(saved) > 0


def count_flags(flags: RowFlags, rows: Layout) -> NDArray[np.int64]:
    """How many are set of the rows of each block (at least one row each)."""
    if rows.width:
        wide = np.uint16 if rows.width < 1 << 16 else np.int64  # the narrow sum is six times as fast
        return np.asarray(flags.view(np.uint8).reshape(-1, rows.width).sum(axis=1, dtype=wide), np.int64)
    counts: NDArray[np.int64] = np.add.reduceat(flags, rows.starts[:-1], dtype=np.int64)
    return counts
