"""What stories of cores hold, and how one is told again to a fresh shard."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from scar.event_log import HandledEvent, ReplayDifference, replay
from scar.placement import Epoch
from scar.tables import Job
from scar_ps.core.actions import AnswerRequest, ShardAction
from scar_ps.core.block_data import BlockLoad, CopiedBlocks
from scar_ps.core.block_snapshot import BlockSnapshot, PieceCopy
from scar_ps.core.block_store import BlockStore
from scar_ps.core.checkpoint_round import Candidates, CheckpointRound, ShardRoundStage
from scar_ps.core.core_state import CoreState
from scar_ps.core.events import Event
from scar_ps.core.shard import Shard


def holds_array(item: object) -> bool:
    if isinstance(item, np.ndarray):
        return True
    if isinstance(item, Mapping):
        return any(map(holds_array, item.values()))
    if isinstance(item, tuple | list):
        return any(map(holds_array, item))
    return is_dataclass(item) and any(holds_array(getattr(item, field.name)) for field in fields(item))


def replay_shard(story: tuple[HandledEvent, ...], fresh: Shard) -> list[ReplayDifference]:
    """Where a fresh shard acts differently.

    Its answers are left out: they are for those who wait, and point into its memory. The same events hold
    parts of the shard that handled them (where a push goes, what it was asked to load): the fresh one gets
    them with its own parts in their place.
    """

    def handle(event: Event, now: float) -> list[ShardAction]:
        *work, answer = fresh.handle(own_parts(event, fresh.state), now)
        if isinstance(answer, AnswerRequest) and isinstance(answer.result, PieceCopy):
            answer.result.copy()
        return work

    return replay(story, handle)


def own_parts(item: Any, state: CoreState) -> Any:
    """The same with stores, loads and copies of this shard."""
    if isinstance(item, BlockStore):
        return state.ownership.tables[item.table.name]
    if isinstance(item, BlockSnapshot):
        return BlockSnapshot(own_parts(item.store, state), item.positions)
    if isinstance(item, BlockLoad):
        return next((load for load in state.ownership.loads if describes_same(load, item)), item)
    if isinstance(item, list) and item and isinstance(item[0], Candidates):
        return own_candidates(item, state.round)
    if isinstance(item, list) and item and isinstance(item[0], CopiedBlocks):
        return own_copy(item, state.round)
    if isinstance(item, Epoch | Job):
        return item
    if isinstance(item, Mapping):
        return {key: own_parts(value, state) for key, value in item.items()}
    if isinstance(item, tuple | list):
        return type(item)(own_parts(one, state) for one in item)
    if is_dataclass(item) and not isinstance(item, type):
        return replace(item, **{one.name: own_parts(getattr(item, one.name), state) for one in fields(item)})
    return item


def describes_same(one: BlockLoad, other: BlockLoad) -> bool:
    return (one.epoch, one.table, one.ids.tobytes()) == (other.epoch, other.table, other.ids.tobytes())


def own_candidates(measured: list[Candidates], own: CheckpointRound) -> list[Candidates]:
    """What this shard's round began with, with the distances that were measured."""
    for mine, theirs in zip(own._started, measured, strict=True):
        assert mine.ids.tobytes() == theirs.ids.tobytes()
        mine.distances = theirs.distances
    return own._started


def own_copy(copied: list[CopiedBlocks], own: CheckpointRound) -> list[CopiedBlocks]:
    """What this shard's round copies; what it has copied must be the same."""
    for mine, theirs in zip(own._copied, copied, strict=True):
        assert mine.state.ids.tobytes() == theirs.state.ids.tobytes()
        if own.stage is ShardRoundStage.COPIED:
            np.testing.assert_array_equal(mine.contents.values, theirs.contents.values)
    return own._copied
