"""What workers still owe to shards, against what shards and checkpoints say that they contain.

A block is settled, and a checkpoint holds a push, only when no worker has that push still to send: else it is
in nobody's memory that it is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from scar._client.core.push_state import PushState
from scar.blocks import BlockState, Ids
from scar_ps.core.core_state import CoreState
from scar_worker.task import TrainingTask
from tests.simulation.cluster import Life


@dataclass(frozen=True, eq=False)
class OwedPush:
    """A push that its shard has never seen. ``worker``: its key; ``ids``: blocks of ``table``."""

    worker: str
    number: int
    shard: str
    table: str
    ids: Ids


def pushes_of(life: Life) -> tuple[int, PushState] | None:
    """The epoch that a worker follows and what it has to send; None: it is no worker, or trains not yet."""
    task = getattr(life.service.main, "__self__", None) if life.service is not None else None
    worker = task.worker if isinstance(task, TrainingTask) else None
    return (worker.epoch, worker._joined.pushes.state) if worker is not None else None


def owed_pushes(lives: Iterable[Life], shards: Mapping[str, CoreState]) -> Iterator[OwedPush]:
    """Of the living that follow one epoch. ``shards``: by member key."""
    for life in lives:
        found = pushes_of(life)
        if found is None:
            continue
        number, pushes = found
        worker = life.app.member.key
        for key, stream in pushes.streams.items():
            shard = shards.get(key)
            if shard is None or shard.number != number:
                continue
            last = shard.sequences._last.get(worker, 0)
            for push in stream.buffer.pushes():
                if not push.acked and (push.seq == 0 or push.seq > last):
                    for table, part in push.tables.items():
                        yield OwedPush(worker, push.push_id, key, table, part.ids)


def _highest_claim(state: CoreState, worker: str) -> int:
    """No block of this shard counts a later push of this worker."""
    bases = (base.get(worker, 0) for base in state.ownership._base_watermarks)
    return max(state.sequences.watermark.get(worker, 0), *bases)


def check_settled(owed: Iterable[OwedPush], shards: Mapping[str, CoreState]) -> list[str]:
    """No settled block of a shard counts a push that it has never seen."""
    found = []
    claims: dict[tuple[str, str], int] = {}
    for push in owed:
        state = shards[push.shard]
        pair = push.shard, push.worker
        if pair not in claims:
            claims[pair] = _highest_claim(state, push.worker)
        store = state.ownership.tables.get(push.table)
        if store is None or claims[pair] < push.number:  # most are: to look at blocks takes long
            continue
        at = store.find_blocks(push.ids)
        at = at[at >= 0]
        at = at[~store.unsettled[at] & (store.loading[at] == 0)]
        for origin in np.unique(store.origin[at]).tolist():
            claimed = state.ownership.watermark_of(origin, state.sequences.watermark).get(push.worker, 0)
            if claimed >= push.number:
                found.append(
                    f"{push.shard} has settled blocks of {push.table} without push {push.number}"
                    f" of {push.worker}"
                )
    return found


def check_saved(owed: Iterable[OwedPush], groups: Iterable[BlockState], where: str) -> list[str]:
    """``groups``: what a checkpoint holds of each block."""
    pushes = list(owed)
    first: dict[str, int] = {}
    for push in pushes:
        first[push.worker] = min(push.number, first.get(push.worker, push.number))
    return [
        f"{where} counts push {push.number} of {push.worker} in table {push.table}, which was never taken"
        for group in groups
        if any(group.watermark.get(worker, 0) >= number for worker, number in first.items())
        for push in pushes
        if group.table == push.table
        and group.watermark.get(push.worker, 0) >= push.number
        and np.isin(push.ids, group.ids).any()
    ]
