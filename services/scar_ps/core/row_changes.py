"""Which rows of a block have changed since it was saved whole, so that a round may save these alone.

The object that has the whole block is its *baseline*; x(0) is one, too, which needs no object. Rows that have
changed since then are saved together each time, those that an earlier round has saved as well: so a block
comes back from two objects at most, whatever the number of rounds (docs/adr/029).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scar.blocks import Array, Layout, Positions
from scar_ps.core.block_arrays import BlockArrays
from scar_runtime.checkpoint.manifest import ObjectRef

RowFlags = NDArray[np.bool_]
Baselines = NDArray[np.int32]
Marks = NDArray[np.uint8]

UNKNOWN = 0  # only the whole block can be saved
SAVING = 1  # the whole block is being saved
INITIAL = 2  # it was at x(0)
FIRST_OBJECT = 3  # numbers of objects begin here
MOST_ROUNDS = 64  # that save changes from one baseline
GENERATIONS = 255  # of a block, before they come again; 0: never


@dataclass(frozen=True, eq=False)
class CopiedChanges:
    """Which rows of a copy are to be saved: all of a block whose number in ``baselines`` is
    :data:`UNKNOWN`; of the others those whose mark is the block's in ``generations``.

    ``marks``: of all rows of the copy, in which they come as values do. ``objects``: what the numbers of
    baselines are; None: x(0).
    """

    baselines: Baselines
    generations: Marks
    marks: Marks
    objects: Mapping[int, ObjectRef | None]

    def find_rows(self, rows: Layout) -> Positions:
        """Rows of the copy that have changed since their block's baseline. ``rows``: of its blocks."""
        return np.flatnonzero(are_changed(self.marks, self.generations, rows))


class RowChanges:
    """Of the blocks of a store, by their positions.

    ``baselines``: number of that of each block. ``marks``: of each row of its memory, the generation in which
    it changed last. A block's generation is another one with each baseline, so no mark has to be taken away;
    where one comes again after 255 a row may count as changed that is not.
    """

    def __init__(self, blocks: BlockArrays, marks: Array) -> None:
        self._blocks = blocks
        self.marks: Marks = marks.view(np.uint8)
        self.baselines: Baselines = np.full(len(blocks), UNKNOWN, np.int32)
        self._generations: Marks = np.ones(len(blocks), np.uint8)
        # rows saved since the baseline, and a share of the block for each round
        self._spent: NDArray[np.float32] = np.zeros(len(blocks), np.float32)

    def note_blocks(self, positions: Positions | slice) -> None:
        """These blocks change as a whole."""
        self.baselines[positions] = UNKNOWN

    def note_rows(self, rows: Positions) -> None:
        """These rows of the store change."""
        blocks = self._blocks.row_counts.find_blocks(rows)
        self.marks[self._blocks.find_in_memory(rows)] = self._generations[blocks]

    def begin(self, positions: Positions, baseline: int) -> None:
        """These blocks are as this baseline has them."""
        self.baselines[positions] = baseline
        self._spent[positions] = 0
        self._generations[positions] = self._generations[positions] % GENERATIONS + 1

    def follow(self, old: RowChanges, target: Positions, kept: Positions | slice) -> None:
        """What is known of the blocks of a former store: those at ``kept`` are at ``target`` here."""
        self.baselines[target] = old.baselines[kept]
        self._generations[target] = old._generations[kept]
        self._spent[target] = old._spent[kept]
        if self._blocks.memory is not old._blocks.memory and len(target):
            at = np.arange(len(old._blocks)) if isinstance(kept, slice) else kept
            marks = old._blocks.gather(old.marks, old._blocks.row_counts, at)
            self._blocks.scatter(self.marks, self._blocks.row_counts, target, marks)

    def count_changed(self, positions: Positions) -> NDArray[np.int64]:
        """Rows of each of these blocks that have changed since its baseline; beside pushes about so many."""
        rows = self._blocks.row_counts.take(positions)
        marks = self._blocks.gather(self.marks, self._blocks.row_counts, positions).view(np.uint8)
        return count_flags(are_changed(marks, self._generations[positions], rows), rows)

    def begin_copy(
        self,
        positions: Positions,
        counts: NDArray[np.int64],
        marks: Marks,
        objects: Mapping[int, ObjectRef | None],
    ) -> CopiedChanges | None:
        """These blocks are copied as they are, ``marks`` with them, to be saved. ``counts``: of
        :meth:`count_changed`; ``objects``: baselines that may be used. None: all blocks are to be saved
        whole.

        A block is saved whole once what its changes have taken since its baseline is as much, and after
        :data:`MOST_ROUNDS`, however few they are: an object that is damaged shall not be built on for ever.
        """
        known = self.baselines[positions]
        sizes = self._blocks.row_counts.take(positions).sizes
        spent = self._spent[positions] + counts + np.where(known == INITIAL, 0.0, sizes / MOST_ROUNDS)
        alone = np.isin(known, list(objects)) & (spent < sizes)
        self._spent[positions[alone]] = spent[alone]
        self.begin(positions[~alone], SAVING)
        if not alone.any():
            return None
        baselines = np.where(alone, known, UNKNOWN)
        return CopiedChanges(baselines, self._generations[positions], marks, objects)

    def end_copy(self, positions: Positions, baseline: int) -> bool:
        """The round is committed: those of these blocks that were saved whole, and not pushed to as a whole
        since, have it as their baseline. True: there are such blocks.
        """
        saved = positions[self.baselines[positions] == SAVING]
        self.baselines[saved] = baseline
        return len(saved) > 0


def are_changed(marks: Marks, generations: Marks, rows: Layout) -> RowFlags:
    """Of packed rows, those whose mark is their block's."""
    if rows.width:
        return np.equal(marks.reshape(-1, rows.width), generations[:, None]).reshape(-1)
    return np.equal(marks, np.repeat(generations, rows.sizes))


def count_flags(flags: RowFlags, rows: Layout) -> NDArray[np.int64]:
    """How many are set of the rows of each block (at least one row each)."""
    if not len(rows):
        return np.zeros(0, np.int64)
    if rows.width:
        wide = np.uint16 if rows.width < 1 << 16 else np.int64  # the narrow sum is six times as fast
        return np.asarray(flags.view(np.uint8).reshape(-1, rows.width).sum(axis=1, dtype=wide), np.int64)
    counts: NDArray[np.int64] = np.add.reduceat(flags, rows.starts[:-1], dtype=np.int64)
    return counts
