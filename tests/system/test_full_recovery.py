"""The baseline: after a failure everything rolls back to the last full checkpoint."""

from __future__ import annotations

from pathlib import Path

from tests.framework.cluster import running


def test_everything_rolls_back_together(tmp_path: Path) -> None:
    policy = {"selection": "full", "fraction": 1.0, "period": 10}
    with running(tmp_path, shards=3, workers=2, recovery="full", checkpoint=policy) as cluster:
        cluster.wait(
            lambda status: bool(status.checkpoint and status.checkpoint.manifest >= 2), "two full checkpoints"
        )
        before = cluster.incarnations()
        cluster.local.kill("ps-1")
        cluster.wait_healed(before, ["ps-1"])
        cluster.verify()
        record = cluster.read_ledger()[0]
        assert record.strategy == "full"
        repaired = next(epoch for epoch in cluster.read_epochs() if epoch.number == record.epoch)
        assert repaired.rollback
        assert sum(len(group.ids) for group in repaired.moved) == cluster.job.blocks
