"""When the ledger says that something of a failure happened, next to when somebody who looked on saw it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import scar
from scar.v1.recovery_pb2 import FailureRecord
from scar_admin.status import ClusterStatus
from scar_local import LocalCluster
from tests.framework.cluster import TIMEOUT

SLOW = 0.25  # seconds from what happens to what the ledger has of it, and a clock that stamps it, at most
LAST_SIGN = 1.0  # before a kill: a heartbeat or an answer
TRAIN = """
import time

def train(worker):
    for clock in worker.clocks(limit=100_000):
        w = worker.pull("w")
        worker.push("w", 0.01 * (1 - w))
        time.sleep(0.02)
"""


@dataclass
class Seen:
    """Something that comes once. ``before``: when it was not there for the last time; ``after``: when it was
    there for the first time; both by ``time.monotonic``, each on the safe side of its look.
    """

    before: float
    after: float = 0.0

    def look(self, there: bool, began: float, ended: float) -> None:
        if not there and not self.after:
            self.before = began
        elif there and not self.after:
            self.after = ended


def is_back(status: ClusterStatus, record: FailureRecord) -> bool:
    """The shard that died has blocks again, and every block is served."""
    shard = status.shards.get("ps-0")
    gone = shard is None or f"ps-0@{shard.member.incarnation}" in record.members
    return not gone and any(table.blocks for table in shard.tables) and not status.loading


def test_phases_are_as_long_as_they_are_seen_to_be(tmp_path: Path) -> None:
    (tmp_path / "approach.py").write_text(TRAIN)
    job = scar.Job("approach", [scar.Table("w", (40, 1), rule=scar.add())], shards=2, workers=2)
    with LocalCluster(tmp_path / "cluster", shards=2) as cluster:
        cluster.start_job(job)
        cluster.start_workers(str(tmp_path / "approach.py"), 2)
        while cluster.status().clock < 20:
            time.sleep(0.1)
        killed = time.monotonic()
        cluster.kill("ps-0")
        repaired, settled, back = Seen(killed), Seen(killed), Seen(killed)
        record = FailureRecord()
        while not back.after or not settled.after or not record.return_seconds:
            began = time.monotonic()
            assert began < killed + TIMEOUT, cluster.status().problems
            status = cluster.status()
            ended = time.monotonic()
            record = status.failures[0] if status.failures else FailureRecord()
            repaired.look(record.epoch > 0, began, ended)
            settled.look(record.epoch > 0 and not record.waiting, began, ended)
            back.look(record.epoch > 0 and is_back(status, record), began, ended)
    assert 0 <= record.suspect_seconds <= record.detect_seconds
    noticed = record.detect_seconds + record.wait_seconds + record.commit_seconds
    assert noticed <= repaired.after - killed + LAST_SIGN
    for seen, seconds in ((settled, record.settle_seconds), (back, record.return_seconds)):
        assert seen.before - repaired.after - SLOW <= seconds <= seen.after - repaired.before + SLOW
    assert record.return_seconds >= record.load_seconds
