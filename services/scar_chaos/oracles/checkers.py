"""Oracles of values and epochs: each raises :class:`Violation` with the first thing that is wrong.

They know nothing of how the services work, only what they promise (docs/guarantees.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from scar.blocks import Ids
from scar.placement import NOBODY, BlockSource, Epoch, concatenate_owners
from scar.tables import Job
from scar_chaos.oracles.history import History, PullRecord, TableValues
from scar_chaos.oracles.violation import require

_NO_IDS: Ids = np.empty(0, np.uint32)


def never_torn(history: History) -> None:
    """No worker saw a block whose elements differ."""
    require(not history.torn, "; ".join(history.torn[:3]))


def never_backwards(history: History, epochs: Sequence[Epoch]) -> None:
    """Between two pulls of one worker a block only grows, unless an epoch in between restored it."""
    restored = _restored_ids(epochs)
    series: dict[tuple[str, str], list[PullRecord]] = {}
    for pull in history.pulls:
        series.setdefault((pull.worker, pull.table), []).append(pull)
    for (worker, table), pulls in series.items():
        for old, new in pairwise(pulls):
            back = np.flatnonzero(new.values < old.values)
            between = range(old.before + 1, new.after + 1)
            excused = [restored.get((number, table), _NO_IDS) for number in between]
            wrong = np.setdiff1d(back, np.concatenate([*excused, _NO_IDS]))
            require(
                not len(wrong),
                f"{worker} saw table {table} blocks {wrong.tolist()} go backwards at clock {new.clock}",
            )


def _restored_ids(epochs: Sequence[Epoch]) -> dict[tuple[int, str], Ids]:
    """(epoch, table) -> blocks that the epoch put back."""
    restored: dict[tuple[int, str], Ids] = {}
    for epoch in epochs:
        for group in epoch.moved:
            if group.source != BlockSource.DONOR:
                key = (epoch.number, group.table)
                restored[key] = np.union1d(restored.get(key, _NO_IDS), group.ids)
    return restored


def epochs_linear(job: Job, epochs: Sequence[Epoch]) -> None:
    """Epochs have no gap, every block has an owner, moves are listed, and fences stay."""
    numbers = [epoch.number for epoch in epochs]
    require(numbers == list(range(1, len(epochs) + 1)), f"epochs are {numbers}")
    for epoch in epochs:
        _check_owners(job, epoch)
    for old, new in pairwise(epochs):
        require(set(old.fenced) <= set(new.fenced), f"epoch {new.number} forgot a fence")
        for table in job.tables:
            _check_moves(old, new, table.name)


def _check_owners(job: Job, epoch: Epoch) -> None:
    """Every block has one owner of its epoch, or nobody; no member is fenced."""
    owners = concatenate_owners(job, epoch.owners)
    require(
        len(owners) == job.blocks,
        f"epoch {epoch.number} has {len(owners)} owners for {job.blocks} blocks",
    )
    owned = bool(((owners < len(epoch.shards)) | (owners == NOBODY)).all())
    require(owned, f"epoch {epoch.number} has an owner that is no shard")
    members = {member.incarnation for member in (*epoch.shards, *epoch.workers)}
    require(not members & set(epoch.fenced), f"epoch {epoch.number} has a fenced member")


def _check_moves(old: Epoch, new: Epoch, table: str) -> None:
    """Owners change only where ``moved`` says so, each block once."""
    moved = [group.ids for group in new.moved if group.table == table]
    listed = np.concatenate([*moved, _NO_IDS])
    require(len(np.unique(listed)) == len(listed), f"epoch {new.number} moves a block twice")
    changed = np.flatnonzero(_owner_keys(old, table) != _owner_keys(new, table))
    orphaned = np.flatnonzero(new.owners[table] == NOBODY)
    wrong = np.setdiff1d(changed, np.concatenate([listed, orphaned]))
    require(not len(wrong), f"epoch {new.number} moved {table} blocks {wrong.tolist()} silently")


def _owner_keys(epoch: Epoch, table: str) -> np.ndarray:
    """Member key of every block's owner."""
    names = np.array([*(member.key for member in epoch.shards), ""])
    owners = epoch.owners[table].astype(np.int64)
    return names[np.where(owners == NOBODY, len(names) - 1, owners)]


def never_ahead(saved: TableValues, values: TableValues) -> None:
    """What a restore would give holds nothing that the model does not."""
    for table in saved:
        wrong = np.flatnonzero(saved[table] > values[table]).tolist()
        require(not wrong, f"the checkpoint is ahead of the model: table {table} blocks {wrong}")
