"""What is looked at while nothing moves: the ledger, memory, leftovers, and what status shows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from scar_admin.status import ClusterStatus
from scar_runtime.store.failure_log import FailureLog
from tests.simulation.cluster import Cluster
from tests.simulation.oracles.cluster_truth import ClusterTruth
from tests.simulation.oracles.leftovers import (
    DEAD,
    LATE_PROBES,
    StoredState,
    find_dead_keys,
    find_garbage,
    find_probes,
)
from tests.simulation.oracles.lives import living, living_shards
from tests.simulation.oracles.memory import MemoryWatch, Sizes, collection_sizes
from tests.simulation.oracles.shown import check_shown
from tests.simulation.oracles.store_view import PREFIX
from tests.simulation.oracles.true_costs import check_costs


class RestWatch:
    """Of one run. ``truth``: what was seen on the way."""

    def __init__(self, cluster: Cluster, truth: ClusterTruth) -> None:
        self._cluster = cluster
        self._truth = truth
        self._memory = MemoryWatch()
        self._scheduler = cluster.world.scheduler

    def judge(self, status: ClusterStatus) -> list[str]:
        """``status``: read a moment ago, at the same rest."""
        truth = self._truth
        assert truth.job is not None
        shards = [state for _, state in living_shards(self._cluster)]
        ledger = FailureLog(truth.store).read()
        return [
            *check_costs(truth.job, truth.costs, ledger),
            *check_shown(status, truth.epochs.epochs, shards, truth.manifests.manifests, ledger),
            *self._check_memory(),
            *find_probes(self._ages(PREFIX), len(truth.died) + LATE_PROBES),
            *find_garbage(self._stored_state()),
            *self._check_redis(),
        ]

    def _check_memory(self) -> Iterable[str]:
        lives = living(self._cluster)
        beating = len(lives) + sum(seconds <= DEAD for seconds in self._dead_for().values())
        for life in lives:
            sizes: Sizes = collection_sizes(life.app, life.service)
            sizes["tasks"] = len(life.host.tasks)
            yield from self._memory.look(life.app.member.key, sizes, beating)

    def _ages(self, prefix: str) -> dict[str, float]:
        """Seconds since each object below was written, by the rest of its key."""
        history = self._truth.history
        return {
            key.removeprefix(prefix): self._scheduler.now - history.created.get(key, self._scheduler.now)
            for key in history.objects
            if key.startswith(prefix)
        }

    def _stored_state(self) -> StoredState:
        truth = self._truth
        now = self._scheduler.now
        return StoredState(
            self._ages(f"{truth.store.prefix}/"),
            truth.manifests.manifests,
            truth.job.checkpoint.keep,
            {number: now - until for number, until in truth.used_until.items()},
            quiet=now - truth.collecting_since,
            damaged=truth.damaged,
        )

    def _check_redis(self) -> list[str]:
        server: Any = self._cluster.world.redis[self._cluster.redis]
        return find_dead_keys(server._values, server._expires, self._dead_for(), self._truth.returned)

    def _dead_for(self) -> dict[str, float]:
        """Member key -> seconds for which it has been dead while a detector could sweep."""
        truth, now = self._truth, self._scheduler.now
        return {key: now - max(at, truth.sweeping_since) for key, at in truth.died.items()}
