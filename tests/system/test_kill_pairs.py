"""Two things die at the same moment, under SSP, so that one is down while the other is being recovered."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scar_chaos.core.faults import Fault
from scar_chaos.inject import inject_faults
from tests.framework.cluster import Cluster, running

PAIRS = [
    ("ps-0", "ps-1"),
    ("ps-1", "worker-0"),
    ("ps-2", "checkpoint-0"),
    ("ps-0", "recovery-0"),
    ("ps-1", "detector-0"),
    ("ps-2", "redis"),
    ("ps-0", "store"),
    ("worker-0", "worker-1"),
    ("worker-1", "recovery-0"),
    ("checkpoint-0", "recovery-0"),
    ("recovery-0", "detector-0"),
    ("redis", "detector-0"),
    ("store", "recovery-0"),
    ("redis", "store"),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(
        tmp_path_factory.mktemp("pairs"), shards=3, workers=2, consistency="ssp", staleness=2
    ) as cluster:
        yield cluster


def death(target: str) -> Fault:
    return Fault(0, "outage" if target == "store" else "kill", target)


@pytest.mark.parametrize("pair", PAIRS, ids="+".join)
def test_heals(cluster: Cluster, pair: tuple[str, str]) -> None:
    cluster.wait_clocks(3)
    inject_faults(cluster, [death(target) for target in pair])
    cluster.verify()
