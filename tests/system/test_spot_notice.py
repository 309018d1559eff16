"""A shard that is told to go: with enough time nothing is lost, and with too little what it saved at the
last moment counts.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.notice import BLOCK_BYTES, give_notice, start_cluster
from scar.placement import BlockSource
from scar_runtime.checkpoint.manifest_codec import read_manifest
from scar_runtime.store import open_store
from scar_runtime.store.layout import MANIFESTS
from tests.framework.cluster import Cluster, running

# no round, unless somebody asks for one
NEVER = {"selection": "priority", "fraction": 0.25, "period": 1_000_000}
SECONDS = 90.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with running(tmp_path, shards=3, workers=2, consistency="bsp", checkpoint=NEVER) as cluster:
        yield cluster


@pytest.fixture
def slow_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """It moves one block after the other, so that there is time to interrupt it."""
    monkeypatch.setenv("SCAR_MOVE_BYTES", "1")
    with running(tmp_path, shards=3, workers=2, consistency="bsp", checkpoint=NEVER) as cluster:
        yield cluster


def flushed(cluster: Cluster) -> int:
    """Wait for the first manifest; its number."""
    deadline = time.monotonic() + SECONDS
    while not (found := list(cluster.store.list(f"{MANIFESTS}/"))):
        assert time.monotonic() < deadline, "nothing was saved"
        time.sleep(0.005)
    return int(found[0].rpartition("/")[2])


def test_enough_time_nothing_is_lost(cluster: Cluster) -> None:
    before = cluster.incarnations()
    cluster.wait_clocks(3)
    cluster.local.kill("ps-0", signal.SIGTERM)
    cluster.wait_healed(before, ["ps-0"])
    cluster.verify()
    assert cluster.read_ledger() == []
    moved = [group for epoch in cluster.read_epochs()[1:] for group in epoch.moved]
    assert {group.source for group in moved} == {BlockSource.DONOR}, (
        "delta is 0: only live values changed hands"
    )


def test_too_little_time_what_was_saved_last_comes_back(slow_cluster: Cluster) -> None:
    cluster = slow_cluster
    before = cluster.incarnations()
    clock = cluster.wait_clocks(3).clock
    cluster.local.kill("ps-0", signal.SIGTERM)
    flushed(cluster)
    cluster.local.kill("ps-0")
    cluster.wait_healed(before, ["ps-0"])
    cluster.verify()
    (failure,) = cluster.read_ledger()
    owners = {ref.owner for ref in read_manifest(cluster.store, failure.manifest).objects}
    assert owners == {f"ps-0@{before['ps-0']}"}, "it alone was saved"
    assert failure.manifest > 0
    assert failure.sources["object"] > 0
    (epoch,) = [epoch for epoch in cluster.read_epochs() if epoch.number == failure.epoch]
    saved = [group for group in epoch.moved if group.source is BlockSource.OBJECT]
    assert min(group.clock for group in saved) >= clock - 1, (
        "they come back as they were when it was told to go"
    )


def test_too_little_time_what_costs_least_is_lost() -> None:
    """Parts of one block, then more; it dies when three are safe, and no block has had the time to move."""
    environment = {
        "SCAR_FLUSH_BYTES": str(BLOCK_BYTES),
        "SCAR_FLUSH_SECONDS": "60",
        "SCAR_LEAVE_SECONDS": "60",
    }
    with start_cluster(megabytes=40, shards=2, environment=environment) as run:
        store = open_store(run.cluster.store_url).under("notice")
        found = give_notice(run, lambda _elapsed: len(list(store.list(f"{MANIFESTS}/"))) >= 3)
    assert 0 < found.lost < found.blocks
    assert found.cost <= 1.001 * found.least, "as many others would have cost more"
