"""What a shard says of itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from scar.losses import LossPoint
from scar.placement import Member
from scar_ps.core.block_store import BlockStore
from scar_ps.core.core_state import CoreState
from scar_ps.core.events import StatusRequested
from scar_ps.core.keyed_store import KeyedBlockStore, KeyTally
from scar_ps.core.loads import LoadHandler, UnreadableLoad
from scar_ps.core.replication import ReplicationHandler
from scar_ps.core.requests import ShardCounts
from scar_ps.core.rounds import RoundHandler
from scar_ps.core.traffic import TrafficSummary


@dataclass(frozen=True, slots=True)
class TableSummary:
    """Blocks of one table on this shard; ``bytes``: of values and slots. ``keys``: what became of keys, and
    how many have a row now, of how many rows; None: the table has none.
    """

    table: str
    blocks: int
    loading: int
    unsettled: int
    bytes: int
    keys: tuple[KeyTally, int, int] | None = None


@dataclass(frozen=True, eq=False, slots=True)
class ShardSummary:
    """``finished``: clocks by worker. ``replicas``: blocks of other shards that are kept here. ``saved_age``:
    seconds since the last committed round, -1: none yet. ``adopted``: open clock when each of the newest
    epochs came. ``problem``: in words; empty: none.
    """

    member: Member
    epoch: int
    clock: int
    tables: Sequence[TableSummary]
    losses: Sequence[LossPoint]
    counts: ShardCounts
    round: int
    saved_clock: int
    saved_age: float
    finished: Mapping[str, int]
    replicas: int
    unreadable: Sequence[UnreadableLoad]
    adopted: Mapping[int, int]
    problem: str
    traffic: TrafficSummary


class StatusHandler:
    """Of one shard."""

    def __init__(
        self, state: CoreState, loads: LoadHandler, rounds: RoundHandler, replication: ReplicationHandler
    ) -> None:
        self._state = state
        self._loads = loads
        self._rounds = rounds
        self._replication = replication

    def summarize(self, event: StatusRequested) -> ShardSummary:
        state = self._state
        saved_at = self._rounds.saved_at
        return ShardSummary(
            member=state.member,
            epoch=state.number,
            clock=state.clock,
            tables=[_summarize_table(store) for store in state.ownership.tables.values()],
            losses=state.barrier.losses_from(event.since_clock),
            counts=state.counts,
            round=state.round.number,
            saved_clock=state.round.saved_clock,
            saved_age=-1.0 if saved_at is None else state.now - saved_at,
            finished=state.barrier.all_finished(),
            replicas=len(state.replicas),
            unreadable=self._loads.unreadable,
            adopted=dict(state.adopted),
            problem=self._loads.problem or state.dismissed or self._replication.problem,
            traffic=state.traffic.read(state.now, event.busiest),
        )


def _summarize_table(store: BlockStore) -> TableSummary:
    loading = int(np.count_nonzero(store.loading))
    unsettled = int(np.count_nonzero(store.unsettled))
    keys = None
    if isinstance(store, KeyedBlockStore):
        keys = replace(store.tally), store.live_rows, store.row_counts.elements
    return TableSummary(store.table.name, len(store), loading, unsettled, store.bytes, keys)
