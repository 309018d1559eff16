"""A cluster whose heartbeat is slower waits longer before it believes a silence."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

import scar
from scar.wire.timing import HEARTBEAT, TIMING
from scar_local import LocalCluster
from scar_runtime.failure_records import FailureRecord

PAUSE_SECONDS = 3.0  # longer than the lease of 2 s, and shorter than one of 8
LONGER_LEASE = 5


@pytest.mark.parametrize(("heartbeat", "failures"), [("0.1", 1), ("0.4", 0)])
def test_a_pause_of_three_seconds_is_a_death_by_default_alone(
    tmp_path: Path, heartbeat: str, failures: int
) -> None:
    job = scar.Job("paused", [scar.Table("w", (8, 4), rule=scar.add())], shards=2, workers=1)
    with LocalCluster(tmp_path / "cluster", shards=2, environment={HEARTBEAT: heartbeat}) as cluster:
        cluster.start_job(job)
        with scar.join(cluster.endpoints.recovery_address, "worker-0") as worker:
            number = cluster.status().number
            for clock in worker.clocks(limit=3):
                worker.push("w", np.ones((8, 4), np.float32))
                if clock == 1:
                    cluster.pause("ps-0")
                    time.sleep(PAUSE_SECONDS)
                    cluster.resume("ps-0")
            assert (cluster.status().number > number) == bool(failures)
            if not failures:
                np.testing.assert_array_equal(worker.pull("w"), np.full((8, 4), 3, np.float32))


def test_the_lease_that_a_shard_has_is_awaited_though_recoverys_own_is_shorter(tmp_path: Path) -> None:
    """As while a cluster gets another lease: before, both a frozen shard and its successor might serve."""
    job = scar.Job("longer", [scar.Table("w", (8, 4), rule=scar.add())], shards=2, workers=1)
    environment = {"SCAR_LEASE_SECONDS": "1"}
    longer = {"lease_seconds": LONGER_LEASE}
    with LocalCluster(
        tmp_path / "cluster", shards=2, environment=environment, shard_settings=longer
    ) as cluster:
        [record] = failures_after(cluster, job, lambda: cluster.pause("ps-0"))
        assert record.detect_seconds + record.wait_seconds >= LONGER_LEASE - 0.1
        cluster.resume("ps-0")


def test_a_death_that_is_proved_is_repaired_without_the_wait_for_a_lease(tmp_path: Path) -> None:
    job = scar.Job("killed", [scar.Table("w", (8, 4), rule=scar.add())], shards=2, workers=1)
    with LocalCluster(tmp_path / "cluster", shards=2, environment={HEARTBEAT: "0.4"}) as cluster:
        failures = failures_after(cluster, job, lambda: cluster.kill("ps-0"))
    assert [record.strategy for record in failures] == ["partial"]
    assert failures[0].wait_seconds < TIMING.lease < 20 * 0.4


def failures_after(
    cluster: LocalCluster, job: scar.Job, fault: Callable[[], None]
) -> Sequence[FailureRecord]:
    """The ledger of a short training with a fault at clock 1."""
    cluster.start_job(job)
    with scar.join(cluster.endpoints.recovery_address, "worker-0") as worker:
        for clock in worker.clocks(limit=3):
            if clock == 1:
                fault()
            worker.push("w", np.ones((8, 4), np.float32))
    return cluster.until(lambda one: bool(one.failures), 30.0, "the failure in the ledger").failures
