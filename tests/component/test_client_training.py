"""What a user's training code sees, against small fake services over real gRPC."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np
import pytest

import scar
from scar import errors
from tests.component.fakes.cluster import FakeCluster

TABLES = [
    scar.Table("w", (20, 3)),
    scar.Table("n", (10, 2), dtype="int64", blocks=scar.ragged([0, 3, 4, 10])),
    scar.Table("layer", (4, 4), dtype="float64", blocks=scar.layer()),
]


def job(consistency: str = "bsp", workers: int = 1, **more: object) -> scar.Job:
    return scar.Job("training", TABLES, consistency=consistency, shards=3, workers=workers, **more)


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    cluster = FakeCluster(job())
    yield cluster
    cluster.close()


@pytest.fixture
def worker(cluster: FakeCluster) -> Iterator[scar.Worker]:
    worker = scar.join(cluster.address, "worker-0", timeout=20)
    yield worker
    worker.close()


def test_pushes_of_a_clock_are_in_the_next_pull(worker: scar.Worker) -> None:
    assert not worker.pull("w").any()
    gradient = np.arange(60, dtype=np.float32).reshape(20, 3)
    worker.push("w", gradient)
    expected = gradient.copy()
    gradient[:] = -1  # ours again as soon as push has returned
    worker.push({"w": expected, "layer": np.ones((4, 4))})
    worker.clock()
    found = worker.pull(["w", "layer"])
    np.testing.assert_array_equal(found["w"], 2 * expected)
    np.testing.assert_array_equal(found["layer"], np.ones((4, 4)))
    assert (found["w"].dtype, found["layer"].dtype) == (np.float32, np.float64)
    assert not found["w"].flags.writeable


def test_some_blocks_only(worker: scar.Worker) -> None:
    worker.push("w", np.array([[1, 1, 1], [2, 2, 2], [4, 4, 4]]), ids=[7, 3, 7])  # 7 twice: summed
    worker.push("n", np.arange(8).reshape(4, 2), ids=[0, 1])
    worker.clock()
    whole = worker.pull("w")
    assert whole[:, 0].tolist() == [0, 0, 0, 2, 0, 0, 0, 5] + [0] * 12
    assert worker.pull("w", ids=[7, 0, 3, 7])[:, 1].tolist() == [5, 0, 2, 5]
    assert worker.pull("n", ids=[1, 0]).tolist() == [[6, 7], [0, 1], [2, 3], [4, 5]]
    assert worker.pull("w", ids=[]).shape == (0, 3)
    found = worker.pull(("w", "n"), ids={"n": [1]})
    assert (found["w"].shape, found["n"].shape) == ((20, 3), (1, 2))


def test_pull_in_the_background(worker: scar.Worker) -> None:
    worker.push("w", np.ones((20, 3)))
    worker.clock()
    pending = worker.pull_async("w")
    both = worker.pull_async(["w", "n"], ids={"w": [2]})
    np.testing.assert_array_equal(pending.result(10), np.ones((20, 3)))
    assert pending.done()
    assert both.result()["w"].tolist() == [[1, 1, 1]]


def test_a_wrong_call_changes_nothing(cluster: FakeCluster, worker: scar.Worker) -> None:
    wrong = [
        (lambda: worker.push("w", np.zeros((20, 4))), errors.ShapeMismatch),
        (lambda: worker.push("w", np.full((20, 3), np.nan)), errors.NonFinite),
        (lambda: worker.push("w", np.zeros((1, 3)), ids=[20]), errors.BlockOutOfRange),
        (lambda: worker.push("v", np.zeros(3)), errors.UnknownTable),
        (lambda: worker.push("w"), errors.InvalidRequest),
        (lambda: worker.push({"w": np.zeros((20, 3))}, np.zeros(3)), errors.InvalidRequest),
        # one wrong, none sent
        (lambda: worker.push({"w": np.ones((20, 3)), "n": np.ones((10, 2))}), errors.ShapeMismatch),
        (lambda: worker.pull("v"), errors.UnknownTable),
        (lambda: worker.pull("w", ids=[-1]), errors.BlockOutOfRange),
    ]
    for call, kind in wrong:
        with pytest.raises(kind):
            call()
    worker.clock()
    assert not worker.pull("w").any()
    assert not any(shard.log for shard in cluster.shards.values())


def test_clocks_up_to_a_limit_and_the_loss(cluster: FakeCluster, worker: scar.Worker) -> None:
    assert np.isnan(worker.loss)
    seen = []
    for clock in worker.clocks(limit=3):
        assert worker.clock_number == clock
        worker.pull("w")
        seen.append((clock, worker.loss_clock))
        worker.report(1.0)
        worker.report(0.5 * clock)
    assert seen == [(0, 0), (1, 1), (2, 2)]
    worker.pull("w")
    assert (worker.loss, worker.loss_clock) == (2.0, 3)
    assert list(worker.clocks(limit=3)) == []


def test_clocks_until_a_loss(worker: scar.Worker) -> None:
    """The loss of the last closed clock decides before the next one, whatever the body pulls."""
    done = 0
    for clock in worker.clocks(until=0.25):
        worker.report(1 / 2**clock)
        done += 1
    assert (done, worker.clock_number, worker.loss) == (3, 3, 0.25)


def test_stop_ends_with_the_open_clock(worker: scar.Worker) -> None:
    for _ in worker.clocks():
        worker.stop()
    assert worker.clock_number == 1


def together(cluster: FakeCluster, count: int, body) -> list[object]:
    with ThreadPoolExecutor(count) as pool, ExitStack() as stack:
        names = [f"worker-{rank}" for rank in range(count)]
        workers = list(pool.map(lambda name: scar.join(cluster.address, name, timeout=20), names))
        for worker in workers:
            stack.callback(worker.close)
        return list(pool.map(body, workers))


@pytest.mark.parametrize("consistency", ["bsp", "ssp", "asp"])
def test_workers_together(consistency: str) -> None:
    cluster = FakeCluster(job(consistency, workers=3))

    def body(worker: scar.Worker) -> tuple[slice, int, float]:
        ahead = 0
        for clock in worker.clocks(limit=5):
            value = worker.pull("w")[0, 0]
            if consistency == "bsp":
                assert value == 3 * clock
            worker.push("w", np.ones((20, 3)))
            worker.report(1.0)
            ahead += 1
        worker.leave()
        return worker.data_slice(10), worker.world_size, ahead

    try:
        found = together(cluster, 3, body)
        assert sorted((part.start, part.stop) for part, _, _ in found) == [(0, 3), (3, 6), (6, 10)]
        assert {world for _, world, _ in found} == {3}
        np.testing.assert_array_equal(cluster.model()["w"], np.full((20, 3), 15))
        assert sorted(cluster.recovery.left) == [(f"worker-{rank}", True) for rank in range(3)]
    finally:
        cluster.close()


def test_join_waits_for_the_job_s_workers() -> None:
    cluster = FakeCluster(job(workers=2))
    try:
        with pytest.raises(errors.DeadlineExceeded, match="the other workers"):
            scar.join(cluster.address, "worker-0", start_timeout=2.0)
        together(cluster, 2, lambda worker: worker.world_size)
    finally:
        cluster.close()


def test_leaving_waits_until_everything_is_in_the_model(cluster: FakeCluster) -> None:
    with scar.join(cluster.address, "worker-0", timeout=20) as worker:
        worker.push("w", np.ones((20, 3)))  # no clock() after it
    np.testing.assert_array_equal(cluster.model()["w"], np.ones((20, 3)))
    assert cluster.recovery.left == [("worker-0", True)]
    with pytest.raises(errors.InvalidRequest, match="left the job"):
        worker.pull("w")
    with pytest.raises(errors.InvalidRequest, match="left the job"):
        worker.push("w", np.ones((20, 3)))
    with pytest.raises(errors.InvalidRequest, match="left the job"):
        worker.pull_async("w")


def test_an_error_of_the_user_gives_the_share_back(cluster: FakeCluster) -> None:
    with pytest.raises(ZeroDivisionError), scar.join(cluster.address, "worker-0", timeout=20):
        raise ZeroDivisionError
    assert cluster.recovery.left == [("worker-0", False)]


def test_a_restarted_worker_goes_on_at_the_open_clock(cluster: FakeCluster) -> None:
    """Its predecessor had finished clock 2 on one shard only: what it pushed for that clock counts on all."""
    first = scar.join(cluster.address, "worker-0", timeout=20)
    for _ in first.clocks(limit=2):
        first.push("w", np.ones((20, 3)))
    first.pull("w")
    first.push("w", np.ones((20, 3)))
    client = first._client
    client.pushes.wait_until(
        client.state.is_acknowledged, scar.wire.transport.Deadline(10), "acknowledgements"
    )
    sealed = cluster.shards["ps-1"]
    with sealed.lock:
        sealed.marks["worker-0"] = (3, cluster.epoch.number)
        sealed._close()
    first.close()
    second = scar.join(cluster.address, "worker-0", timeout=20)
    assert second.clock_number == 3
    for _ in second.clocks(limit=4):
        second.push("w", np.ones((20, 3)))
    np.testing.assert_array_equal(second.pull("w"), np.full((20, 3), 4))
    second.close()


def test_a_reader_is_no_worker(cluster: FakeCluster, worker: scar.Worker) -> None:
    worker.push("w", np.ones((20, 3)))
    worker.clock()
    worker.pull("w")
    with scar.connect(cluster.address, timeout=10) as reader:
        np.testing.assert_array_equal(reader.pull("w"), np.ones((20, 3)))
        assert reader.pull(["n"], ids={"n": [1]})["n"].shape == (1, 2)
        before = reader.epoch
        cluster.kill("ps-0")
        cluster.recover(["ps-0"])
        assert reader.pull("w", ids=[3]).shape == (1, 3)
        reader.pull("w")
        assert reader.epoch == before + 1
    with pytest.raises(errors.InvalidRequest, match="closed"):
        reader.pull("w")


def test_connect_to_nobody() -> None:
    with pytest.raises(errors.DeadlineExceeded, match=r"127\.0\.0\.1:1"):
        scar.connect("127.0.0.1:1", timeout=0.3)
    with pytest.raises(errors.DeadlineExceeded, match=r"127\.0\.0\.1:1"):
        scar.join("127.0.0.1:1", "worker-0", start_timeout=0.3)


def test_push_waits_when_too_much_is_under_way(cluster: FakeCluster) -> None:
    worker = scar.join(cluster.address, "worker-0", timeout=20, unacked_bytes=100)
    for shard in cluster.shards.values():
        shard.loading = True
    for _ in range(8):
        pushing = threading.Thread(target=worker.push, args=("w", np.ones((20, 3))), daemon=True)
        pushing.start()
        pushing.join(0.2)
        if pushing.is_alive():
            break
    assert pushing.is_alive()
    assert all(
        stream.buffer.waiting_bytes < 100 + 20 * 12 for stream in worker._client.state.streams.values()
    )
    for shard in cluster.shards.values():
        shard.loading = False
    pushing.join(10)
    assert not pushing.is_alive()
    worker.clock()
    worker.close()
