"""Blocks that move while they are served: frozen for their next owner, or received (docs/protocol.md §7)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from scar.blocks import BlockState
from scar.errors import InvalidRequest
from scar_ps.core.admission import Admission
from scar_ps.core.block_data import InheritedPush
from scar_ps.core.block_store import StoreSlice
from scar_ps.core.core_state import CoreState
from scar_ps.core.requests import MustWait
from scar_ps.core.transfer_events import BlocksReceived, FreezeRequested, FrozenRequested


@dataclass(frozen=True, slots=True)
class FrozenState:
    """What frozen blocks contain, and the open clock. ``ahead``: those that contain more, as they were
    restored.
    """

    watermark: Mapping[str, int]
    clock: int
    ahead: Sequence[BlockState] = ()


@dataclass(frozen=True, slots=True)
class FrozenBlocks:
    """Frozen blocks, and what has to go with them.

    ``pushes``: those that wait for the blocks of each part. ``committed``: what the newest manifest holds,
    and the stores do not show yet.
    """

    parts: Sequence[StoreSlice]
    pushes: Sequence[Sequence[InheritedPush]]
    committed: Sequence[StoreSlice]


class MigrationHandler:
    """Of one shard."""

    def __init__(self, state: CoreState, admission: Admission) -> None:
        self._state = state
        self._admission = admission

    def freeze_blocks(self, event: FreezeRequested) -> FrozenState:
        """Stop these blocks until the next epoch."""
        epoch = self._admission.check_epoch(event.epoch)
        wanted = self._admission.resolve_blocks(event.wanted)
        state = self._state
        own = state.sequences.watermark
        state.ownership.forget_overtaken(own, [worker.key for worker in epoch.workers])
        self._require_watermark(wanted)
        state.ownership.freeze_blocks(wanted)
        state.story.note(clock=state.clock)
        return FrozenState(dict(own), state.clock, list(self._find_ahead(wanted)))

    def _find_ahead(self, wanted: Sequence[StoreSlice]) -> Iterator[BlockState]:
        """Those of these blocks that contain more than the shard's own watermark says."""
        state = self._state
        for part in wanted:
            for origin in np.unique(part.origins[part.origins > 0]).tolist():
                contents = state.ownership.watermark_of(origin, state.sequences.watermark)
                mine = part.ids[part.origins == origin]
                yield BlockState(part.store.table.name, mine, state.clock, contents)

    def _require_watermark(self, wanted: Sequence[StoreSlice]) -> None:
        """Blocks that came from a worker may contain pushes of clocks that are open here.

        Workers keep those pushes, and would send them again to an owner that did not know of them.
        """
        state = self._state
        if state.job is None or not state.job.strategy.asks_workers:
            return
        for part in wanted:
            if part.origins.any():
                raise MustWait(f"blocks of table {part.store.table.name} are ahead of this shard")

    def find_frozen(self, event: FrozenRequested) -> FrozenBlocks:
        """Where the frozen blocks are, for their new owner to copy."""
        self._admission.check_epoch(event.epoch)
        parts = self._admission.resolve_blocks(event.wanted)
        for part in parts:
            if not part.store.frozen[slice(None) if part.positions is None else part.positions].all():
                raise InvalidRequest(f"blocks of table {part.store.table.name} are not frozen")
        pushes = [self._state.bsp_buffer.pushes_for(part) for part in parts]
        return FrozenBlocks(parts, pushes, list(self._state.round.committed))

    def keep_incoming(self, event: BlocksReceived) -> None:
        """The next epoch makes them ours."""
        self._state.ownership.keep_incoming(event.incoming)
        self._state.story.note(blocks=sum(len(one.ids) for one in event.incoming))
