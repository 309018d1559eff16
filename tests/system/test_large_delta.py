"""The norm of delta that the ledger has of a large model: it is what the kill has changed."""

from __future__ import annotations

import time

import numpy as np
import pytest

import scar
from benchmarks.training import AS_BETWEEN_MACHINES, NEVER
from scar.v1 import recovery_pb2
from scar_local import LocalCluster

ROWS = 20_000  # of which a shard has some 2.5 MB: more than one message brings
WIDTH = 64
START = 7.0
SECONDS = 90.0


def reported(cluster: LocalCluster) -> recovery_pb2.FailureRecord | None:
    """The record of the only failure, once all workers have said what it cost them."""
    asked = recovery_pb2.ListFailuresRequest()
    answer = cluster.endpoints.recovery.ListFailures(asked, timeout=SECONDS)
    found = answer.failures[0] if answer.failures else None
    return found if found and found.reports and not found.waiting else None


@pytest.mark.parametrize("settings", [{}, AS_BETWEEN_MACHINES], ids=["one machine", "messages"])
def test_what_comes_back_is_measured(settings: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each clock adds one to every element, and nothing was saved: the dead shard's go back to their start.

    New memory has what it had before; here that is nothing that could pass for a value.
    """
    monkeypatch.setattr(np, "empty_like", lambda array: np.full_like(array, np.nan))
    table = scar.Table("w", (ROWS, WIDTH), init=scar.constant(START), rule=scar.sgd(lr=1.0))
    job = scar.Job("delta", tables=[table], shards=2, workers=1, consistency="bsp", checkpoint=NEVER)
    with LocalCluster(shards=2, environment=settings) as cluster:
        cluster.start_job(job)
        with scar.join(cluster.endpoints.recovery_address, "worker-0") as worker:
            clocks = iter(worker.clocks(limit=1 << 30))
            for _ in range(3):
                before = worker.pull("w")
                worker.push("w", np.full((ROWS, WIDTH), -1, np.float32))
                next(clocks)
            lost = worker.pull("w")
            assert lost.min() == lost.max() > before.max()
            cluster.kill("ps-1")
            deadline = time.monotonic() + SECONDS
            while not (found := reported(cluster)):
                assert time.monotonic() < deadline
                worker.push("w", np.full((ROWS, WIDTH), -1, np.float32))
                next(clocks)
    assert found.lost_blocks > ROWS / 4
    assert found.delta_exact
    assert found.delta_norm == pytest.approx((lost.max() - START) * np.sqrt(found.lost_blocks * WIDTH))
