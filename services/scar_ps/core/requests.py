"""What is asked of a shard, and what it lets other threads see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scar.blocks import Ids, RowNames

if TYPE_CHECKING:
    from scar_ps.core.block_store import BlockStore, StoreSlice


@dataclass(frozen=True, eq=False, slots=True)
class WantedRows:
    """Rows of a table, or images of keys, ascending, in the place of block ids."""

    rows: RowNames


# tables with block ids, or rows; None: all blocks of the shard
WantedBlocks = Sequence[tuple[str, Ids | None]]
PulledParts = Sequence[tuple[str, Ids | WantedRows | None]]


class MustWait(Exception):
    """A request cannot be served yet; it is tried again after the next change.

    The text says what it waits for.
    """


@dataclass(frozen=True, slots=True)
class Sender:
    """Who sent a request; an empty name is a reader that is no worker."""

    name: str
    incarnation: str

    @property
    def key(self) -> str:
        return f"{self.name}@{self.incarnation}"


@dataclass(frozen=True, eq=False, slots=True)
class StagedPush:
    """A whole push, checked against the tables of ``epoch``. ``rate``: factor of the learning rate."""

    sender: Sender
    epoch: int
    seq: int
    push_id: int
    clock: int
    parts: Mapping[str, StoreSlice]
    rate: float = 1.0


@dataclass(frozen=True, slots=True)
class ShardView:
    """What a push or a metric may read from another thread: one epoch and the stores that belong to it."""

    epoch: int = 0
    tables: Mapping[str, BlockStore] = field(default_factory=dict)
    staged_limit: int = 0  # bytes that always fit: two or three whole pushes of every worker


@dataclass(slots=True)
class ShardCounts:
    """Since the start of the process."""

    pushes: int = 0
    duplicates: int = 0
    stale: int = 0
