"""What processes hold in memory: looks that take no time, and what shards held when they died."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from scar.blocks import Array, Ids
from scar_ps.core.core_state import CoreState
from scar_ps.service import ShardService
from scar_runtime.liveness.leader_election import LeaderElection
from tests.simulation.cluster import Cluster, Life
from tests.simulation.scheduler import Scheduler


def shard_state(life: Life) -> CoreState | None:
    """None: it is no shard."""
    service = getattr(life.service.start, "__self__", None) if life.service is not None else None
    return service.state if isinstance(service, ShardService) else None


def election_of(life: Life) -> LeaderElection[Any] | None:
    """Of a coordinator, which keeps it where only its functions see it."""
    if life.service is None:
        return None
    found = inspect.getclosurevars(life.service.ready).nonlocals.get("election")
    return found if isinstance(found, LeaderElection) else None


def living(cluster: Cluster) -> list[Life]:
    return [life for life in cluster.lives if life.host.alive]


def living_shards(cluster: Cluster) -> list[tuple[Life, CoreState]]:
    found = [(life, shard_state(life)) for life in living(cluster)]
    return [(life, state) for life, state in found if state is not None]


def holds_lease(life: Life, scheduler: Scheduler) -> bool:
    """Whether it would serve, by its own clock. Asking it would be a switching point."""
    monitor: Any = life.app.liveness
    now = life.host.boottime(scheduler.now)
    return not monitor._given_up and now - monitor._renewed < monitor._lease_seconds


@dataclass(frozen=True, eq=False)
class HeldTable:
    """Blocks of one table as a shard had them at one moment. ``there``: mask of those that were loaded."""

    ids: Ids
    values: Array
    starts: np.ndarray
    there: np.ndarray

    def find(self, block: int) -> Array | None:
        """Values of one block; None: it was not there."""
        at = int(np.searchsorted(self.ids, block))
        if at == len(self.ids) or self.ids[at] != block or not self.there[at]:
            return None
        return self.values[self.starts[at] : self.starts[at + 1]]


@dataclass(frozen=True, eq=False)
class HeldBlocks:
    """What a shard had. ``crashed``: it died with it, while it might serve."""

    epoch: int
    clock: int
    crashed: bool
    tables: Mapping[str, HeldTable]


class BusyShards:
    """Member keys of shards whose apply thread is in the middle of an event, with half of its effects."""

    def __init__(self, cluster: Cluster) -> None:
        self.keys: set[str] = set()
        for life in living(cluster):
            self._watch_life(life)
        cluster.born.append(self._watch_life)

    def _watch_life(self, life: Life) -> None:
        state = shard_state(life)
        if state is None or life.service is None:
            return
        queue: Any = life.service.start.__self__._apply_thread._queue  # type: ignore[attr-defined]
        queue.handle = partial(self._handle, state.member.key, queue.handle)

    def _handle(self, key: str, handle: Callable[..., Any], *arguments: Any) -> Any:
        self.keys.add(key)
        try:
            return handle(*arguments)
        finally:
            self.keys.discard(key)


def held_blocks(state: CoreState, crashed: bool = False) -> HeldBlocks:
    """A copy of what it has now."""
    tables = {
        name: HeldTable(
            store.ids,
            store.copy_blocks(np.arange(len(store))).values,
            store.layout.starts,
            store.loading == 0,
        )
        for name, store in state.ownership.tables.items()
        for every in [np.arange(len(store))]
    }
    return HeldBlocks(state.number, state.clock, crashed, tables)


class ShardMemory:
    """What every shard has, and what the dead ones had when they died, by member key."""

    def __init__(self, cluster: Cluster) -> None:
        self._scheduler = cluster.world.scheduler
        self._cluster = cluster
        self._dead: dict[str, HeldBlocks] = {}
        for life in living(cluster):
            self._watch_life(life)
        cluster.born.append(self._watch_life)

    def _watch_life(self, life: Life) -> None:
        state = shard_state(life)
        if state is not None:
            life.host.crashed.append(lambda: self._keep_dead(life, state))

    def _keep_dead(self, life: Life, state: CoreState) -> None:
        self._dead[state.member.key] = held_blocks(state, holds_lease(life, self._scheduler))

    def now(self) -> dict[str, HeldBlocks]:
        """Of the living as it is now."""
        alive = {state.member.key: held_blocks(state) for _, state in living_shards(self._cluster)}
        return self._dead | alive
