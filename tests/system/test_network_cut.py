"""A process that is cut off from the network: it lives, hears nothing and is not heard until that is over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from scar_chaos.core.faults import Fault
from scar_chaos.inject import inject_faults
from scar_local.cuts import begin_cut, end_cut
from tests.framework.cluster import Cluster, running


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder: Path = tmp_path_factory.mktemp("cut")
    with running(folder, shards=3, workers=2, consistency="bsp") as cluster:
        yield cluster
        assert cluster.finish() == {"worker-0": 0, "worker-1": 0}
        cluster.check(cluster.read_values())


def cut_off(cluster: Cluster, name: str) -> None:
    begin_cut(cluster.local.directory, cluster.local.processes, name, 60.0)


def test_a_shard_is_replaced_while_it_lives_and_is_a_zombie_afterwards(cluster: Cluster) -> None:
    cluster.wait_clocks(3)
    before = cluster.incarnations()
    pid, failures = cluster.local.pid("ps-1"), len(cluster.read_ledger())
    epoch = cluster.status().number
    cut_off(cluster, "ps-1")
    cluster.wait(lambda status: status.number > epoch, "an epoch without the shard")
    cluster.wait_clocks(3)  # without it
    assert cluster.local.pid("ps-1") == pid
    assert cluster.disk.process_state("ps-1") == "cut"
    record = cluster.read_ledger()[failures]
    assert record.members == [f"ps-1@{before['ps-1']}"]
    assert not any("process" in word for word in record.evidence), record.evidence
    end_cut(cluster.local.directory, "ps-1")
    cluster.wait_healed(before, ["ps-1"])
    assert cluster.local.pid("ps-1") != pid  # it has heard that it was replaced, and began anew
    cluster.verify()


@pytest.mark.parametrize("name", ["worker-1", "recovery", "checkpoint", "detector", "redis"])
def test_heals(cluster: Cluster, name: str) -> None:
    cluster.wait_clocks(3)
    inject_faults(cluster, [Fault(0, "cut", name)])
    cluster.verify()
