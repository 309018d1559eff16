"""Blocks on their way: packed contents, and what they are copied, loaded, inherited or received as."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scar.blocks import Array, BlockState, Ids, Layout, Positions, RowNames, positions_of
from scar.placement import BlockGroup, BlockSource, Epoch
from scar.tables import Table
from scar_ps.core.requests import Sender
from scar_ps.core.row_changes import CopiedChanges


@dataclass(slots=True)
class BlockContents:
    """Packed contents of some blocks.

    Values and slots are flat and have the table's dtype; there is one step per block. ``saved``: what the
    running checkpoint holds.
    """

    values: Array
    slots: Mapping[str, Array] = field(default_factory=dict)
    steps: NDArray[np.int64] | None = None
    saved: Array | None = None  # absent: the same as the values

    @property
    def bytes(self) -> int:
        """Values and slots."""
        return self.values.nbytes + sum(slot.nbytes for slot in self.slots.values())


@dataclass(frozen=True, eq=False, slots=True)
class CopiedBlocks:
    """A copy of blocks of one table that are in the same state. ``changes``: which rows are to be saved;
    None: all.
    """

    state: BlockState
    contents: BlockContents
    changes: CopiedChanges | None = None


@dataclass(frozen=True, eq=False, slots=True)
class BlockLoad:
    """Blocks that are to be read from the store, initialised, or awaited from the worker ``sender``.

    ``clock``: they are as they were when it was open.
    """

    epoch: int
    manifest: int
    table: str
    ids: Ids
    source: BlockSource
    object_key: str
    sender: str = ""
    clock: int = 0

    @property
    def facts(self) -> dict[str, object]:
        """For a story, which keeps no arrays."""
        return {
            "epoch": self.epoch,
            "table": self.table,
            "blocks": len(self.ids),
            "source": self.source,
            "object": self.object_key,
            "sender": self.sender,
        }


def make_load(epoch: Epoch, group: BlockGroup, ids: Ids) -> BlockLoad:
    """Of these blocks of a group."""
    return BlockLoad(
        epoch.number,
        epoch.manifest,
        group.table,
        ids,
        group.source,
        group.object_key,
        group.sender,
        group.clock,
    )


@dataclass(frozen=True, eq=False, slots=True)
class InheritedPush:
    """What one push owes some blocks of one table, while it waits for its clock to close (BSP).

    It goes with the blocks from their owner to the next one. ``rows``: the values are of these rows of the
    table alone (ascending).
    """

    sender: Sender
    push_id: int
    clock: int
    ids: Ids
    values: Array
    rows: RowNames | None = None

    def select_blocks(self, table: Table, ids: Ids) -> InheritedPush | None:
        """The same for those of these blocks that it concerns; None: for none."""
        at = positions_of(self.ids, ids)
        at = at[at >= 0]
        if not len(at):
            return None
        if self.rows is None:
            layout = table.layout.take(self.ids.astype(np.int64))
            return replace(self, ids=self.ids[at], values=layout.gather(self.values, at))
        inside = np.flatnonzero(np.isin(table.find_blocks(self.rows), self.ids[at]))
        layout = Layout.even(len(self.rows), table.row_elements)
        values = layout.gather(self.values, inside)
        return replace(self, ids=self.ids[at], values=values, rows=self.rows[inside])


@dataclass(frozen=True, eq=False, slots=True)
class IncomingBlocks:
    """Blocks copied from a donor in ``epoch``, until the next epoch gives them to this shard.

    ``pushes``: those that wait for them at the donor.
    """

    epoch: int
    donor: str
    table: str
    ids: Ids
    contents: BlockContents
    pushes: Sequence[InheritedPush] = ()


def select_contents(table: Table, ids: Ids, contents: BlockContents, positions: Positions) -> BlockContents:
    """The contents of the blocks ``ids[positions]``; no copy when these are all."""
    if len(positions) == len(ids):
        return contents
    at = ids.astype(np.int64)
    layout: Layout = table.layout.take(at)
    return BlockContents(
        layout.gather(contents.values, positions),
        {
            name: table.slot_layout(name).take(at).gather(slot, positions)
            for name, slot in contents.slots.items()
        },
        None if contents.steps is None else contents.steps[positions],
        None if contents.saved is None else layout.gather(contents.saved, positions),
    )


def differing_values(values: Array) -> Array:
    """Saved values that no value equals, so that the blocks count as changed.

    For blocks of which nobody knows what the checkpoint holds.
    """
    known: Any = values
    return np.full_like(known, np.nan) if known.dtype.kind == "f" else ~known
