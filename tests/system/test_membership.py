"""Members come, go and come back while training runs."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from scar.placement import BlockSource
from tests.framework.cluster import Cluster, running


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("membership"), shards=3, workers=2, consistency="asp") as cluster:
        yield cluster


def test_returned_shard_gets_blocks_without_perturbation(cluster: Cluster) -> None:
    """delta = 0: a join moves values from living donors only, and loses nothing."""
    failures = len(cluster.read_ledger())
    cluster.local.kill("ps-2", respawn=False)
    cluster.wait(lambda status: any(one.epoch for one in status.failures[failures:]), "the recovery")
    before = cluster.wait(
        lambda status: bool(status.epoch and len(status.epoch.shards) == 2), "an epoch without it"
    ).number
    cluster.local.restart("ps-2")
    cluster.verify()
    joined = [epoch for epoch in cluster.read_epochs() if epoch.number > before]
    moved = [group for epoch in joined for group in epoch.moved]
    assert moved
    assert {group.source for group in moved} == {BlockSource.DONOR}
    assert "join" in {epoch.cause for epoch in joined}
    assert len(cluster.read_ledger()) == failures + 1


def test_worker_killed_goes_on_at_the_open_clock(cluster: Cluster) -> None:
    before = cluster.incarnations()
    clock = cluster.wait_clocks(3).clock
    cluster.local.kill("worker-1")
    cluster.wait_healed(before, ["worker-1"])
    reborn = cluster.incarnations()["worker-1"]
    cluster.verify()
    first = min(pull.clock for pull in cluster.read_history().pulls if pull.worker == f"worker-1@{reborn}")
    assert first >= clock - 1


def test_drained_shard_loses_nothing(cluster: Cluster) -> None:
    """SIGTERM: its blocks move to the others before it ends."""
    failures = len(cluster.read_ledger())
    before = cluster.incarnations()
    cluster.local.kill("ps-0", signal.SIGTERM)
    cluster.wait_healed(before, ["ps-0"])
    cluster.verify()
    assert len(cluster.read_ledger()) == failures
    assert "leave" in {epoch.cause for epoch in cluster.read_epochs()}
