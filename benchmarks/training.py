"""A cluster of real processes with this process as its only worker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import scar
from benchmarks.measure import Action
from scar.errors import Internal
from scar.v1 import checkpoint_pb2
from scar_local import LocalCluster
from scar_runtime.memory import keep_freed

NEVER = scar.Checkpoint("priority", fraction=1 / 8, period=1 << 40)  # rounds only when a benchmark asks for one
STEPS = 1 << 30
SECONDS = 60.0
ROUND = checkpoint_pb2.TriggerRequest(selection="full", fraction=1.0)


@dataclass(frozen=True)
class Training:
    cluster: LocalCluster
    worker: scar.Worker
    clocks: Iterator[int]

    def step(self, action: Action) -> None:
        """``action``, e.g. a push; then the end of the iteration: all pushes acknowledged, the clock closed."""
        action()
        next(self.clocks)

    def save(self) -> None:
        """A round that saves everything that has changed. Raises :class:`Internal` when it failed."""
        report = self.cluster.checkpoint.Trigger(ROUND, timeout=SECONDS)
        if report.error:
            raise Internal(f"round {report.round} failed: {report.error}")


@contextmanager
def training(
    tables: Sequence[scar.Table],
    *,
    shards: int = 1,
    consistency: str = "bsp",
    store: str | None = None,
    shared: bool = True,
) -> Iterator[Training]:
    """Everything started, the first iteration open. ``shared``: whether large payloads may go through shared memory."""
    keep_freed()  # as every worker process does
    job = scar.Job("bench", tables=tables, shards=shards, workers=1, consistency=consistency, checkpoint=NEVER)
    environment = {"SCAR_SHARED_MEMORY": str(shared)}
    with LocalCluster(shards=shards, store=store, environment=environment) as cluster:
        cluster.start_job(job)
        with scar.join(cluster.recovery_address, "worker-0") as worker:
            clocks = iter(worker.clocks(limit=STEPS))
            next(clocks)
            cluster.until(lambda status: status.checkpoint is not None and status.checkpoint.leader, SECONDS, "the coordinator")
            yield Training(cluster, worker, clocks)
