"""A coordinator that chooses its rounds: what it shows is what it does, and what failures have taken."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

import scar
from scar.v1.checkpoint_pb2 import RoundPlan
from scar_admin.status import ClusterStatus
from scar_local import LocalCluster
from tests.framework.cluster import TIMEOUT

ROWS = 400
SHARDS = 2


class Story:
    """Kills a shard once rounds are chosen, then the coordinator that chose them; ends the training when its
    successor has counted both.
    """

    def __init__(self, cluster: LocalCluster, over: Path) -> None:
        self.cluster, self.over = cluster, over
        self.chosen: RoundPlan | None = None
        self.counted: RoundPlan | None = None
        self.inherited: RoundPlan | None = None
        self.saved = 0  # manifest after which the coordinator is killed, and its successor's first
        self.leaderless = False

    def watch(self, status: ClusterStatus) -> None:
        if status.checkpoint is None or not status.checkpoint.HasField("plan"):
            return
        plan = status.checkpoint.plan
        if self.chosen is None:
            if plan.reason.startswith("all blocks once"):
                self.chosen = plan
                self.cluster.kill("ps-1")
        elif self.counted is None:
            if plan.failures:
                self.counted = plan
                self.saved = status.checkpoint.manifest
        elif self.inherited is None and status.checkpoint.manifest > self.saved + 1:
            if self.leaderless:
                self.inherited = plan
                self.over.touch()
            else:
                self.leaderless, self.saved = True, status.checkpoint.manifest
                self.cluster.kill("checkpoint-0")


def test_a_budget_is_kept_and_failures_are_counted(tmp_path: Path) -> None:
    over = tmp_path / "over"

    def train(worker: scar.Worker) -> None:
        for clock in worker.clocks():
            values = worker.pull("w")
            worker.push("w", np.ones_like(values) * (clock % 5))
            time.sleep(0.02)
            if over.exists():
                break

    table = scar.Table("w", (ROWS, 16), rule=scar.sgd(lr=0.1))
    checkpoint = scar.Checkpoint.auto(stall_share=0.05, bytes_per_second=2e5)
    job = scar.Job("chosen", [table], shards=SHARDS, checkpoint=checkpoint)
    with LocalCluster(tmp_path / "home", shards=SHARDS, respawn_delay=0.1) as cluster:
        story = Story(cluster, over)
        result = cluster.train(job, train, timeout=3 * TIMEOUT, watch=story.watch)
    assert story.chosen is not None
    assert story.counted is not None
    assert story.inherited is not None
    lost = sum(
        sum(count for source, count in record.sources.items() if source in ("object", "initial"))
        for record in result.ledger
    )
    assert story.inherited.failures == story.counted.failures == 1
    assert story.inherited.lost == lost / ROWS
    assert story.inherited.seconds >= story.counted.seconds
    assert story.chosen.every > 1, "a round at each clock would be above the budget"
