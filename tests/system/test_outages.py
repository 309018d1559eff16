"""Redis or the store is away for a while: training goes on, nobody is accused, the checkpoint grows old
and heals.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.framework.cluster import Cluster, running

AWAY = 3.0  # seconds; three leases of the cluster under test


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("outages"), shards=2, workers=2) as cluster:
        yield cluster


def test_redis_down_starts_no_recovery(cluster: Cluster) -> None:
    before = cluster.wait_clocks(3)
    number = before.number
    cluster.local.kill("redis", respawn=False)
    start = cluster.status().clock
    time.sleep(AWAY)
    cluster.wait_clock(start + 6)
    status = cluster.wait(
        lambda status: all(shard.serving for shard in status.shards.values()), "all shards to serve"
    )
    assert (status.number, len(status.failures)) == (number, len(before.failures))
    cluster.local.restart("redis")
    cluster.wait_clocks(3)
    assert cluster.status().number == number
    cluster.verify()


def test_redis_comes_back_empty(cluster: Cluster) -> None:
    number = cluster.wait_clocks(3).number
    failures = len(cluster.read_ledger())
    cluster.local.restart("redis")
    cluster.wait_clocks(10)
    assert cluster.status().number == number
    assert len(cluster.read_ledger()) == failures
    cluster.verify()


def test_death_while_redis_is_down_is_recovered(cluster: Cluster) -> None:
    """The detector's own probes are enough."""
    before = cluster.incarnations()
    failures = len(cluster.read_ledger())
    cluster.local.kill("redis", respawn=False)
    cluster.local.kill("ps-0", respawn=False)
    cluster.wait(lambda status: any(one.epoch for one in status.failures[failures:]), "a recovery")
    cluster.local.restart("ps-0")
    cluster.local.restart("redis")
    cluster.wait_healed(before, ["ps-0"])
    cluster.verify()


def test_store_down_training_goes_on(cluster: Cluster) -> None:
    cluster.wait(lambda status: bool(status.checkpoint and status.checkpoint.manifest), "a first checkpoint")
    cluster.disk.take_away()
    try:
        time.sleep(0.5)
        start = cluster.status()
        time.sleep(AWAY)
        status = cluster.wait_clock(start.clock + 6)
        assert start.checkpoint is not None
        assert status.checkpoint is not None
        assert status.checkpoint.manifest == start.checkpoint.manifest
        assert status.checkpoint.age > start.checkpoint.age + AWAY / 2
        assert "store" in " ".join(status.problems).lower()
    finally:
        cluster.disk.bring_back()
    cluster.wait(
        lambda status: bool(status.checkpoint and 0 <= status.checkpoint.age < 1), "a new checkpoint"
    )
    cluster.verify()


def test_without_redis_and_store_nobody_serves_and_nothing_is_lost(cluster: Cluster) -> None:
    """Nobody could tell a shard that it was replaced, so it stops with its lease; either of the two is
    enough to go on.
    """
    number = cluster.wait_clocks(3).number
    cluster.disk.take_away()
    cluster.local.kill("redis", respawn=False)
    try:
        cluster.wait(
            lambda status: not any(shard.serving for shard in status.shards.values()), "leases to run out"
        )
        stands = cluster.status().clock
        time.sleep(1)
        assert cluster.status().clock == stands
    finally:
        cluster.disk.bring_back()
    cluster.wait(lambda status: status.clock > stands + 3, "training to go on without Redis")
    cluster.local.restart("redis")
    assert cluster.wait_clocks(3).number == number
    cluster.verify()


def test_death_while_the_store_is_down_waits_for_it(cluster: Cluster) -> None:
    """Recovery waits and says so; it never puts x(0) in place of what it cannot read."""
    before, number = cluster.incarnations(), cluster.status().number
    cluster.disk.take_away()
    try:
        cluster.local.kill("ps-1")
        status = cluster.wait(
            lambda status: bool(status.recovery and status.recovery.problem),
            "recovery to say what it waits for",
        )
        assert status.number == number
    finally:
        cluster.disk.bring_back()
    cluster.wait_healed(before, ["ps-1"])
    cluster.verify()
