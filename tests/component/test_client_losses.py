"""Parts of losses as a worker tells them, against small fake services over real gRPC."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import scar
from scar import errors
from scar.losses import LossPart, LossPoint
from tests.component.fakes.cluster import FakeCluster


def job(consistency: str) -> scar.Job:
    return scar.Job("losses", [scar.Table("w", (20, 3))], consistency=consistency, shards=3)


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[FakeCluster]:
    cluster = FakeCluster(job(getattr(request, "param", "bsp")))
    yield cluster
    cluster.close()


@pytest.fixture
def worker(cluster: FakeCluster) -> Iterator[scar.Worker]:
    worker = scar.join(cluster.address, "worker-0", timeout=20)
    yield worker
    worker.close()


def eventually(true: Callable[[], bool]) -> None:
    """Marks follow in the background."""
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)


def parts(cluster: FakeCluster, clock: int) -> list[LossPart | None]:
    """What each shard has of worker-0's part of a clock."""
    return [shard.parts.get(clock, {}).get("worker-0") for shard in cluster.shards.values()]


def test_a_part_says_of_which_share_it_is(cluster: FakeCluster, worker: scar.Worker) -> None:
    for clock in worker.clocks(limit=3):
        if clock == 1:
            worker.data_slice(10)
        if clock < 2:
            worker.report(0.5)
            worker.report(0.25)
            worker.log({"accuracy": 0.5})
        else:
            worker.report(0.5, examples=4, of=10)
            worker.report(0.25, examples=6)
    worker.pull("w")
    assert cluster.shards["ps-0"].losses == {0: 0.75, 1: 0.75, 2: 0.75}
    assert parts(cluster, 0) == [LossPart(0.75, 0, 1, metrics=(("accuracy", 0.5),))] * 3
    assert parts(cluster, 1) == [LossPart(0.75, 0, 1, 10, 10, metrics=(("accuracy", 0.5),))] * 3
    assert parts(cluster, 2) == [LossPart(0.75, 0, 1, 10, 10, True)] * 3


def test_a_wrong_report_changes_nothing(cluster: FakeCluster, worker: scar.Worker) -> None:
    for wrong in ({"examples": 3}, {"of": 3}, {"examples": 4, "of": 3}):
        with pytest.raises(errors.InvalidRequest):
            worker.report(1.0, **wrong)
    worker.report(0.5)
    worker.clock()
    worker.pull("w")
    assert parts(cluster, 0) == [LossPart(0.5, 0, 1)] * 3


def test_the_clock_that_leaving_adds_has_no_part(cluster: FakeCluster) -> None:
    """It used to tell the part of the clock before once more, and could leave out the mark to which that
    belongs.
    """
    with scar.join(cluster.address, "worker-0", timeout=20) as worker:
        worker.report(1.0)
        worker.clock()
        worker.push("w", np.ones((20, 3)))  # in clock 1, which leaving has to close
    assert parts(cluster, 0) == [LossPart(1.0, 0, 1)] * 3
    assert parts(cluster, 1) == [None] * 3


@pytest.mark.parametrize("cluster", ["ssp"], indirect=True)
def test_who_leaves_leaves_no_mark_out(
    cluster: FakeCluster, worker: scar.Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outside of BSP nobody has waited for the last clock's mark, to which the part of its loss belongs."""
    state, pushes = worker._client.state, worker._client.pushes
    eventually(state.is_acknowledged)
    leaving = threading.Event()

    def refuse() -> None:
        leaving.wait(10)
        raise errors.NotServing("not yet")

    cluster.shards["ps-0"].faults["Clock"] = refuse
    worker.report(1.0)
    worker.clock()
    wait_until = pushes.wait_until

    def wait(ready: Callable[[], bool], *rest: Any) -> bool:
        if ready != state.is_drained:  # for the mark, or when it is too late: for the very last one
            leaving.set()
        return wait_until(ready, *rest)

    monkeypatch.setattr(pushes, "wait_until", wait)
    worker.leave()
    assert parts(cluster, 0) == [LossPart(1.0, 0, 1)] * 3


def test_a_mark_that_is_given_again_brings_its_part_again(cluster: FakeCluster, worker: scar.Worker) -> None:
    worker.report(1.0)
    worker.clock()
    eventually(lambda: None not in parts(cluster, 0))
    cluster.shards["ps-1"].parts.clear()
    cluster.announce()
    eventually(lambda: None not in parts(cluster, 0))


def test_after_a_rollback_nobody_tells_what_was_computed_before(
    cluster: FakeCluster, worker: scar.Worker
) -> None:
    worker.report(1.0)
    worker.clock()
    eventually(lambda: None not in parts(cluster, 0))
    for shard in cluster.shards.values():
        shard.parts.clear()
    number = cluster.roll_back().number
    eventually(lambda: all(shard.marks["worker-0"][1] == number for shard in cluster.shards.values()))
    assert parts(cluster, 0) == [None] * 3


def test_a_successor_has_no_part_in_a_clock_of_which_its_predecessor_told_a_shard(
    cluster: FakeCluster,
) -> None:
    first = scar.join(cluster.address, "worker-0", timeout=20)
    for _ in first.clocks(limit=2):
        first.report(1.0)
    eventually(lambda: None not in parts(cluster, 1))
    first.close()
    told = cluster.shards["ps-1"]
    with told.lock:
        told.marks["worker-0"] = (3, cluster.epoch.number)
    second = scar.join(cluster.address, "worker-0", timeout=20)
    assert second.clock_number == 3
    for _ in second.clocks(limit=4):
        second.report(5.0)
    eventually(lambda: None not in parts(cluster, 3))
    second.close()
    assert parts(cluster, 2) == [None] * 3


def test_who_ends_for_a_loss_tells_for_which(cluster: FakeCluster) -> None:
    with scar.join(cluster.address, "worker-0", timeout=20) as worker:
        for clock in worker.clocks(until=0.25):
            worker.report(1 / 2**clock)
    assert [shard.heard[-1] for shard in cluster.shards.values()] == [LossPoint(2, 0.25)] * 3
    with scar.join(cluster.address, "worker-0", timeout=20) as again:
        assert list(again.clocks(until=0.25)) == []  # one that comes later does not go on alone


def test_an_old_share_is_told_aloud(cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    worker = scar.join(cluster.address, "worker-0", timeout=20)
    other = scar.join(cluster.address, "worker-1", timeout=20)
    eventually(lambda: worker.worker_names == other.worker_names)
    worker.clock()
    worker.data_slice(10)
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        for change in range(3):
            worker.report(1.0)
            worker._client.pushes.wait_until = lambda *_: True  # nobody else works here
            worker.clock()
            if not change:
                cluster.joined(scar.placement.Member(scar.placement.Role.WORKER, "worker-2", "2"))
                eventually(lambda: len(worker.worker_names) == 3)
                worker.clock()
    assert [record.getMessage().split(";")[0] for record in caplog.records] == [
        "worker-0 still works on share 1 of 2 of the data, dealt to worker-0, worker-1 in epoch 3"
    ]
    worker.close()
    other.close()
