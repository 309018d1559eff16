"""From SIGKILL to the last block served again: one of two shards dies with 100 MB."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

import numpy as np

import scar
from benchmarks import yardsticks
from benchmarks.measure import BenchRow, Pair, duration_row, time_action
from benchmarks.training import BenchTraining, start_training
from scar.v1 import recovery_pb2
from scar_local import ClusterStatus

LOST_BYTES = 100_000_000
SHAPE = (2 * LOST_BYTES // 256, 64)
SECONDS = 60.0


def measure_rows(repeat: int) -> list[BenchRow]:
    totals = []
    loads = []
    with start_training([scar.Table("w", SHAPE)], shards=2) as run:
        run.step(lambda: run.worker.push("w", np.ones(SHAPE, dtype=np.float32)))
        run.worker.pull("w")
        run.save()
        for number in range(1, min(repeat, 3) + 1):
            record = kill_and_recover(run, number)
            loads.append(record.commit_seconds + record.load_seconds)
            totals.append(record.detect_seconds + record.wait_seconds + loads[-1])
    read = _plain_read(repeat)
    against = "read of one file of the same size"
    return [
        duration_row("recovery of 100 MB: plan and load", Pair(statistics.median(loads), read), "s", against),
        duration_row(
            "recovery of 100 MB: from the last sign of life",
            Pair(statistics.median(totals), read),
            "s",
            against,
        ),
    ]


def kill_and_recover(run: BenchTraining, number: int) -> recovery_pb2.FailureRecord:
    """Kill, wait for the repair and for the return of the shard; the ledger's record."""
    run.cluster.kill("ps-1")

    def repaired(status: ClusterStatus) -> bool:
        return (
            len(status.failures) >= number
            and status.failures[number - 1].load_seconds != 0
            and status.loading == 0
        )

    record = run.cluster.until(repaired, SECONDS, "the recovery").failures[number - 1]
    run.step(lambda: run.worker.pull("w", ids=np.arange(8, dtype=np.uint32)))
    run.cluster.until(_is_balanced, SECONDS, "the return of the shard")
    return record


def _is_balanced(status: ClusterStatus) -> bool:
    owned = [sum(table.blocks for table in shard.tables) for shard in status.shards.values()]
    return len(owned) == 2 and status.loading == 0 and min(owned) > 0.4 * sum(owned)


def _plain_read(repeat: int) -> float:
    data = np.ones(LOST_BYTES, dtype=np.uint8)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plain"
        yardsticks.write_durable(path, data)
        return statistics.median(
            time_action(lambda: np.fromfile(path, dtype=np.uint8)) for _ in range(repeat)
        )
