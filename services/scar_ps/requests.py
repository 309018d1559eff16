"""What is asked of a shard, and what it lets other threads see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from scar.blocks import Ids
from scar_ps.barrier import Sender
from scar_ps.blockstore import BlockStore, Part

Wanted = Sequence[tuple[str, Ids | None]]  # tables with block ids; None: all blocks of the shard


@dataclass(slots=True)
class Push:
    """One staged push: checked against the tables of ``epoch``. ``rate``: factor of the learning rate."""

    sender: Sender
    epoch: int
    seq: int
    push_id: int
    clock: int
    parts: Mapping[str, Part]
    rate: float = 1.0


@dataclass(frozen=True, slots=True)
class View:
    """What a push or a status call may read from another thread: one epoch and the stores that belong to it."""

    epoch: int = 0
    tables: Mapping[str, BlockStore] = field(default_factory=dict)
    staged_limit: int = 0  # bytes that always fit: two whole pushes of every worker


@dataclass(slots=True)
class Counts:
    """Since the start of the process."""

    pushes: int = 0
    duplicates: int = 0
    stale: int = 0
