"""A request that nobody answers, as a proxy loses it, costs one try and not the worker's whole timeout."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

import scar
from scar import errors
from scar.wire import transport
from tests.component.fakes.cluster import FakeCluster

CLOCKS = 3


def wait_in_vain(over: threading.Event) -> None:
    """Until the test is over: then the request has no effect."""
    over.wait(30)
    raise errors.NotServing("the request was lost")


@pytest.mark.parametrize("method", ["Pull", "Push"])
def test_a_request_that_is_lost_costs_one_try(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    monkeypatch.setattr(transport, "ATTEMPT_SECONDS", 0.3)
    cluster = FakeCluster(scar.Job("lost", [scar.Table("w", (12, 2))], consistency="bsp", shards=2))
    over = threading.Event()
    cluster.shards["ps-0"].faults[method] = lambda: wait_in_vain(over)
    began = time.monotonic()
    try:
        with scar.join(cluster.address, "worker-0", timeout=20) as worker:
            for _ in worker.clocks(limit=CLOCKS):
                worker.pull("w")
                worker.push({"w": np.ones((12, 2))})
        assert time.monotonic() - began < 10
        np.testing.assert_array_equal(cluster.model()["w"], np.full((12, 2), CLOCKS))
    finally:
        over.set()
        cluster.close()
