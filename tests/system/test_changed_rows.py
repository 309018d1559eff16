"""Rows that were saved alone come back after SIGKILLs, from x(0) and from objects (docs/adr/029)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import scar
from benchmarks.training import BenchTraining, start_training
from scar.v1 import checkpoint_pb2
from scar_cli.checkpoints import JobStore
from scar_cli.export import assemble_table
from scar_local import ClusterStatus
from scar_runtime.checkpoint.running_checkpoint import load_newest
from scar_runtime.store import open_store
from tests.framework.cluster import TIMEOUT

pytestmark = pytest.mark.timeout(400)  # many processes, and other tests may run beside them

ROWS = 20_000
EVERYTHING = checkpoint_pb2.TriggerRequest(selection="priority", fraction=1.0)


def save_changes(run: BenchTraining) -> int:
    """Bytes. A first try may find that a recovery has taken the number of its manifest."""
    for _ in range(3):
        report = run.cluster.endpoints.checkpoint.Trigger(EVERYTHING, timeout=TIMEOUT)
        if not report.error:
            return int(report.bytes)
    raise AssertionError(report.error)


def kill_and_heal(run: BenchTraining, shard: str, deaths: int) -> None:
    """Until it has its blocks again."""
    run.cluster.kill(shard)

    def healed(status: ClusterStatus) -> bool:
        loaded = sum(one.load_seconds != 0 for one in status.failures)
        owned = [sum(table.blocks for table in one.tables) for one in status.shards.values()]
        return loaded >= deaths and status.loading == 0 and len(owned) == 3 and min(owned) > 0

    run.cluster.until(healed, TIMEOUT, f"the return of {shard}")


def test_rows_that_were_saved_alone_come_back(tmp_path: Path) -> None:
    init = scar.constant(3)
    table = scar.Table("w", (ROWS, 4), dtype="int64", rule=scar.add(), init=init, blocks=scar.rows(100))
    drawn = np.random.default_rng(7)
    counted = np.full((ROWS, 4), 3)
    written = []
    store = open_store(f"file://{tmp_path}").under("bench")
    with start_training([table], shards=3, store=f"file://{tmp_path}") as run:
        for death in range(1, 5):
            for _ in range(2):  # blocks that came back are saved whole first
                for _ in range(4):
                    rows = np.unique(drawn.integers(0, ROWS, 400))
                    run.step(lambda: run.worker.push("w", np.ones((len(rows), 4), np.int64), rows=rows))  # noqa: B023
                    counted[rows] += 1
                written.append(save_changes(run))
            running = load_newest(store, run.worker.job)
            assert any(header.has_changes for header in running.headers)
            assert (assemble_table(JobStore(store, run.worker.job), running, table) == counted).all()
            kill_and_heal(run, f"ps-{death % 3}", death)
            assert (run.worker.pull("w") == counted).all()
    assert written[0] < table.bytes / 4, "of 20,000 rows some 1,500 have changed"
    assert written[3] < written[2], "blocks that came back were saved whole"
