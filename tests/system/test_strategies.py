"""Every server-side strategy survives a server that dies once, and then another one; the books agree with
what it promises.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from scar.placement import Epoch, replica_chain
from scar.v1.recovery_pb2 import FailureRecord
from scar_admin.status import ClusterStatus
from tests.framework.cluster import Cluster, running

pytestmark = pytest.mark.timeout(300)  # two repairs, each waited for until all is well

CHECKPOINT: dict[str, Any] = {"checkpoint": {"selection": "full", "fraction": 1.0, "period": 10}}


def kill(cluster: Cluster, name: str) -> tuple[FailureRecord, Epoch]:
    """SIGKILL, healed, judged; what the ledger says, and the epoch that repaired it."""
    before, failures = cluster.incarnations(), len(cluster.read_ledger())
    cluster.local.kill(name)
    cluster.wait_healed(before, [name])
    cluster.verify()
    record = cluster.read_ledger()[failures]
    assert [member.split("@")[0] for member in record.members] == [name]
    assert record.strategy == cluster.job.recovery
    return record, next(epoch for epoch in cluster.read_epochs() if epoch.number == record.epoch)


def saved(status: ClusterStatus) -> int:
    """Clock of the newest checkpoint; 0: there is none."""
    return status.checkpoint.clock if status.checkpoint else 0


def finish(cluster: Cluster) -> None:
    assert set(cluster.finish().values()) == {0}
    cluster.check(cluster.read_values())


@pytest.mark.parametrize("consistency", ["bsp", "asp"])
@pytest.mark.parametrize("recovery", ["sync-checkpoint", "async-checkpoint"])
def test_a_checkpoint_strategy_takes_everything_back(tmp_path: Path, recovery: str, consistency: str) -> None:
    with running(
        tmp_path, shards=3, workers=2, recovery=recovery, consistency=consistency, **CHECKPOINT
    ) as cluster:
        for name in ("ps-1", "ps-2"):
            cluster.wait(lambda status: saved(status) > max(0, status.clock - 10), "a young checkpoint")
            record, repaired = kill(cluster, name)
            assert repaired.rollback
            assert sum(len(group.ids) for group in repaired.moved) == cluster.job.blocks
            # all shards stop at the clock for which it was due
            if recovery == "sync-checkpoint" and consistency == "bsp":
                assert repaired.manifest
                assert record.clock - repaired.clock <= 2 * 10
        finish(cluster)


def wait_chained(cluster: Cluster) -> None:
    """Until every block has as many copies as the job wants."""
    wanted = cluster.job.blocks * cluster.job.strategy.replicas
    cluster.wait(
        lambda status: sum(shard.replicas for shard in status.shards.values()) == wanted, "whole chains"
    )


@pytest.mark.parametrize("consistency", ["bsp", "ssp", "asp"])
@pytest.mark.parametrize("recovery", ["sync-chain", "async-chain"])
def test_a_successor_takes_over(tmp_path: Path, recovery: str, consistency: str) -> None:
    options: dict[str, Any] = {"staleness": 1} if consistency == "ssp" else {}
    # No rounds: what one has just saved may be fresher than the copy, and would win.
    options["checkpoint"] = {"selection": "priority", "fraction": 0.5, "period": 1_000_000}
    with running(
        tmp_path, shards=3, workers=2, recovery=recovery, consistency=consistency, **options
    ) as cluster:
        for name in ("ps-1", "ps-2"):
            wait_chained(cluster)
            cluster.wait_clocks(5)
            record, repaired = kill(cluster, name)
            assert not repaired.rollback
            assert dict(record.sources) == {"replica": record.lost_blocks}
            assert record.clock - min(group.clock for group in repaired.moved) <= 2
            if recovery == "sync-chain":
                assert record.lost_pushes == 0
        finish(cluster)


def test_what_a_period_may_lose_is_in_the_books(tmp_path: Path) -> None:
    with running(tmp_path, shards=3, workers=2, recovery="sync-chain", replica_period=10) as cluster:
        for name in ("ps-1", "ps-2"):
            wait_chained(cluster)
            cluster.wait_clocks(12)
            record, repaired = kill(cluster, name)
            assert set(record.sources) <= {"replica", "object"}
            assert record.clock - min(group.clock for group in repaired.moved) <= 10
        finish(cluster)


def test_the_second_replica_serves_when_two_neighbours_die_at_once(tmp_path: Path) -> None:
    with running(tmp_path, shards=4, workers=2, recovery="sync-chain", replicas=2) as cluster:
        wait_chained(cluster)
        cluster.wait_clocks(5)
        epoch = cluster.read_epochs()[-1]
        owner = epoch.shards[0]
        pair = [owner.name, replica_chain(cluster.job, epoch, owner.key)[0].name]
        before = cluster.incarnations()
        for name in pair:
            cluster.local.kill(name)
        cluster.wait_healed(before, pair)
        cluster.verify()
        assert sum(record.sources["replica"] for record in cluster.read_ledger()) >= sum(
            r.lost_blocks for r in cluster.read_ledger()
        )
        wait_chained(cluster)
        finish(cluster)


def test_partial_recovery_takes_the_freshest_source(tmp_path: Path) -> None:
    """A copy of every update is fresher than a checkpoint; blocks without a copy still come from the
    checkpoint.
    """
    with running(tmp_path, shards=3, workers=2, recovery="partial", replicas=1) as cluster:
        wait_chained(cluster)
        cluster.wait_clocks(5)
        record, repaired = kill(cluster, "ps-1")
        assert dict(record.sources) == {"replica": record.lost_blocks}
        assert record.clock - min(group.clock for group in repaired.moved) <= 2
        finish(cluster)


STATELESS: dict[str, Any] = {
    "recovery": "stateless",
    "consistency": "asp",
    "checkpoint": {"selection": "priority", "fraction": 1.0, "period": 1},
}


def test_what_a_stateless_server_acknowledged_is_in_the_store(tmp_path: Path) -> None:
    with running(tmp_path, shards=3, workers=2, **STATELESS) as cluster:
        for name in ("ps-1", "ps-2"):
            cluster.wait_clocks(5)
            record, repaired = kill(cluster, name)
            assert not repaired.rollback
            assert set(record.sources) <= {"object", "initial"}
            assert record.lost_pushes == 0
        finish(cluster)


def _least_progress(before: dict[str, int], now: dict[str, int]) -> int:
    return min(clock - before[worker] for worker, clock in now.items())


def test_workers_go_on_while_the_only_server_is_away(tmp_path: Path) -> None:
    """What they push meanwhile is all applied when it is back, as one."""
    with running(tmp_path, shards=1, workers=2, **STATELESS) as cluster:
        for _ in range(2):
            cluster.wait_clocks(5)
            before, began = cluster.incarnations(), dict(cluster.read_history().acknowledged)
            cluster.local.kill("ps-0", respawn=False)
            deadline = time.monotonic() + 60
            while _least_progress(began, cluster.read_history().acknowledged) < 20:
                assert time.monotonic() < deadline, "a worker waits for the server"
                time.sleep(0.1)
            cluster.local.restart("ps-0")
            cluster.wait_healed(before, ["ps-0"])
            cluster.verify()
        assert [record.lost_pushes for record in cluster.read_ledger()] == [0, 0]
        finish(cluster)
