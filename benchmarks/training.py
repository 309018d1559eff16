"""A cluster of real processes with this process as its only worker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import scar
from benchmarks.measure import TimedAction
from scar.errors import Internal
from scar.strategies import variant_options
from scar.v1 import checkpoint_pb2
from scar_local import LocalCluster
from scar_runtime.process.memory import keep_freed

# rounds only when a benchmark asks for one
NEVER = scar.Checkpoint("priority", fraction=1 / 8, period=1 << 40)
AS_BETWEEN_MACHINES = {"SCAR_SHARED_MEMORY": "false"}
BY_GRPC = {**AS_BETWEEN_MACHINES, "SCAR_DIRECT_CALLS": "false"}  # as where no other port can be reached
STEPS = 1 << 30
SECONDS = 60.0
ROUND = checkpoint_pb2.TriggerRequest(selection="full", fraction=1.0)


@dataclass(frozen=True)
class BenchTraining:
    cluster: LocalCluster
    worker: scar.Worker
    clocks: Iterator[int]

    def step(self, action: TimedAction) -> None:
        """One iteration: ``action``, e.g. a push; then all pushes acknowledged and the clock closed."""
        action()
        next(self.clocks)

    def save(self) -> None:
        """A round that saves everything that has changed. Raises :class:`Internal` when it failed."""
        report = self.cluster.endpoints.checkpoint.Trigger(ROUND, timeout=SECONDS)
        if report.error:
            raise Internal(f"round {report.round} failed: {report.error}")


@contextmanager
def start_training(
    tables: Sequence[scar.Table],
    *,
    shards: int = 1,
    consistency: str = "bsp",
    store: str | None = None,
    settings: Mapping[str, str] | None = None,
    strategy: str = "partial",
) -> Iterator[BenchTraining]:
    """Everything started, the first iteration open.

    ``settings``: of the cluster's processes, such as :data:`AS_BETWEEN_MACHINES`. ``strategy``: a name of
    :func:`scar.strategies.variant_options`.
    """
    keep_freed()  # as every worker process does
    how: dict[str, Any] = {"consistency": consistency, **variant_options(strategy)}
    job = scar.Job("bench", tables=tables, shards=shards, workers=1, checkpoint=NEVER, **how)
    with LocalCluster(shards=shards, store=store, environment=dict(settings or {})) as cluster:
        cluster.start_job(job)
        with scar.join(cluster.endpoints.recovery_address, "worker-0") as worker:
            clocks = iter(worker.clocks(limit=STEPS))
            next(clocks)
            cluster.until(
                lambda status: status.checkpoint is not None and status.checkpoint.leader,
                SECONDS,
                "the coordinator",
            )
            yield BenchTraining(cluster, worker, clocks)
