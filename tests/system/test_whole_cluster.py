"""The store alone is enough: all shards at once, the whole cluster, and a job that goes on in a new one."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from scar_chaos.restore import restore_tables
from tests.framework.cluster import Cluster, running


def test_all_shards_die_at_once(tmp_path: Path) -> None:
    with running(tmp_path, shards=3, workers=2) as cluster:
        cluster.wait(
            lambda status: bool(status.checkpoint and status.checkpoint.manifest >= 4), "some checkpoints"
        )
        before = cluster.incarnations()
        for name in cluster.shards:
            cluster.local.kill(name)
        cluster.wait_healed(before, cluster.shards)
        cluster.verify()
        assert sum(record.lost_blocks for record in cluster.read_ledger()) >= cluster.job.blocks


def test_everything_dies_and_the_job_resumes(tmp_path: Path) -> None:
    """A new cluster on the same store has exactly the newest checkpoint, and goes on from it."""
    with running(tmp_path, shards=3, workers=2) as cluster:
        cluster.wait(
            lambda status: bool(status.checkpoint and status.checkpoint.manifest >= 4), "some checkpoints"
        )
        for process in cluster.local.processes():
            cluster.local.kill(process.name, respawn=False)
    saved = restore_tables(cluster.store, cluster.job)
    started = resumed_values(tmp_path, cluster)
    for table, values in saved.items():
        np.testing.assert_array_equal(started[table], values)


def resumed_values(folder: Path, old: Cluster) -> dict[str, np.ndarray]:
    """Values with which the job's next life starts: those that the first worker to start pulled."""
    lives = set(old.read_history().acknowledged)
    with running(folder, shards=3, workers=2, resume=True) as cluster:
        cluster.wait_clocks(3)
        first: dict[str, np.ndarray] = {}
        for pull in sorted(cluster.read_history().pulls, key=lambda pull: pull.clock):
            if pull.worker not in lives:
                first.setdefault(pull.table, pull.values)
        assert cluster.finish() == {"worker-0": 0, "worker-1": 0}
        return first
