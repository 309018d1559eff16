"""Becoming a worker while coordinators come and go."""

from __future__ import annotations

import pytest

import scar
from scar._client import recovery_client
from tests.component.fakes.cluster import FakeCluster


def test_a_worker_that_a_replaced_coordinator_took_in_joins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery_client, "POLL_SECONDS", 0.2)
    cluster = FakeCluster(scar.Job("joining", [scar.Table("w", (12, 2))], consistency="asp", shards=1))
    try:
        cluster.recovery.forgetful = 2
        with scar.join(cluster.address, "worker-0", timeout=20) as worker:
            assert worker.world_size == 1
        assert cluster.recovery.forgetful == 0
    finally:
        cluster.close()
