"""Every process and every outside service dies once under BSP; training heals, and every oracle holds
after each death.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from scar_chaos.core.faults import Fault
from scar_chaos.inject import inject_faults
from tests.framework.cluster import Cluster, running

DEATHS = [
    *(Fault(0, "kill", name) for name in ("ps-0", "ps-1", "ps-2", "worker-0", "worker-1")),
    *(Fault(0, "kill", name) for name in ("checkpoint-0", "recovery-0", "detector-0", "redis")),
    *(Fault(0, "outage", name) for name in ("ps-1", "worker-1", "recovery-0", "redis", "store")),
    Fault(0, "blink", "ps-2"),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """After all of it the workers finish, and the last values are right, too."""
    folder: Path = tmp_path_factory.mktemp("each")
    with running(folder, shards=3, workers=2, consistency="bsp") as cluster:
        yield cluster
        assert cluster.finish() == {"worker-0": 0, "worker-1": 0}
        cluster.check(cluster.read_values())


@pytest.mark.parametrize("fault", DEATHS, ids=lambda fault: f"{fault.kind}-{fault.target}")
def test_heals(cluster: Cluster, fault: Fault) -> None:
    cluster.wait_clocks(3)
    failures = len(cluster.read_ledger())
    inject_faults(cluster, [fault])
    cluster.verify()
    died = {entry.split("@")[0] for record in cluster.read_ledger()[failures:] for entry in record.members}
    assert died == (
        {fault.target} if fault.target.startswith(("ps-", "worker-")) and fault.kind != "blink" else set()
    )
