"""Shards and the coordinator die at every kind of call. Training goes on; every push is in the model or in a report, once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

import scar
from scar import codec, errors
from tests.component.fakes.cluster import FakeCluster

TABLES = [scar.Table("w", (12, 2)), scar.Table("n", (10, 2), blocks=scar.ragged([0, 3, 4, 10]))]
Start = Callable[..., FakeCluster]


@pytest.fixture
def start() -> Iterator[Start]:
    clusters: list[FakeCluster] = []

    def make(consistency: str, shards: int = 3) -> FakeCluster:
        clusters.append(FakeCluster(scar.Job("failures", TABLES, consistency=consistency, shards=shards)))
        return clusters[-1]

    yield make
    for cluster in clusters:
        cluster.close()


def work(worker: scar.Worker, clocks: int) -> None:
    """One push of ones to everything in each clock."""
    for _ in worker.clocks(limit=clocks):
        worker.pull(["w", "n"])
        worker.push({"w": np.ones((12, 2)), "n": np.ones((10, 2))})
        worker.report(1.0)


def train(address: str) -> None:
    with scar.join(address, "worker-0", timeout=20) as worker:
        work(worker, 3)


def check(cluster: FakeCluster, pushes: int) -> None:
    """Every block holds all pushes but those that were reported lost for it."""
    lost = {table.name: np.zeros(table.blocks) for table in TABLES}
    for report in cluster.recovery.reports:
        for entry in report.lost:
            lost[entry.table][codec.ids_from_bytes(entry.block_ids)] += entry.upto - entry.after
    for table in TABLES:
        expected = np.repeat(pushes - lost[table.name], np.diff(table.row_offsets))
        np.testing.assert_array_equal(cluster.model()[table.name], np.stack([expected, expected], axis=1))


def killer(cluster: FakeCluster, name: str, delay: float = 0.02) -> Callable[[], None]:
    """A fault: the shard dies in the middle of the call, and is recovered a moment later."""

    def die() -> None:
        cluster.kill(name)
        threading.Timer(delay, cluster.recover, ([name],)).start()

    return die


@pytest.mark.parametrize("consistency", ["bsp", "asp"])
@pytest.mark.parametrize("method", ["Push", "Ack", "Pull", "Clock", "Settle"])
def test_a_shard_dies_in_the_middle_of_a_call(start: Start, consistency: str, method: str) -> None:
    cluster = start(consistency)
    with scar.join(cluster.address, "worker-0", timeout=20) as worker:
        work(worker, 2)
        cluster.save()
        work(worker, 4)
        cluster.shards["ps-1"].faults[method] = killer(cluster, "ps-1")
        if method == "Settle":
            cluster.announce()
        work(worker, 8)
    assert cluster.shards["ps-1"].dead
    check(cluster, 8)
    assert worker.reroutes >= 1


@pytest.mark.parametrize("consistency", ["bsp", "asp"])
def test_two_shards_die_one_after_the_other(start: Start, consistency: str) -> None:
    """The second takes over blocks of the first and dies before it has saved them."""
    cluster = start(consistency)
    with scar.join(cluster.address, "worker-0", timeout=20) as worker:
        work(worker, 3)
        for number, name in enumerate(("ps-0", "ps-1")):
            worker.push({"w": np.ones((12, 2)), "n": np.ones((10, 2))})
            cluster.kill(name)
            cluster.recover([name], failure=number + 1)
            worker.clock()
        work(worker, 7)
    check(cluster, 7)


@pytest.mark.parametrize("consistency", ["bsp", "asp"])
def test_all_shards_die_and_new_ones_come(start: Start, consistency: str) -> None:
    cluster = start(consistency, shards=2)
    with scar.join(cluster.address, "worker-0", timeout=20) as worker:
        work(worker, 2)
        for name in ("ps-0", "ps-1"):
            cluster.kill(name)
        worker.push({"w": np.ones((12, 2)), "n": np.ones((10, 2))})
        cluster.recover(["ps-0", "ps-1"])
        while worker.epoch < cluster.epoch.number:
            time.sleep(0.01)
        worker.push({"w": np.ones((12, 2)), "n": np.ones((10, 2))})  # nobody owns anything: it is kept
        threading.Timer(0.1, cluster.add, ("ps-5", "00000000000a")).start()
        worker.clock()
        work(worker, 5)
    check(cluster, 6)


@pytest.mark.parametrize("consistency", ["bsp", "asp"])
def test_live_moves_lose_nothing(start: Start, consistency: str) -> None:
    """Blocks go round while pushes are under way; what their new owner lacks is sent again, and nothing is reported lost."""
    cluster = start(consistency)
    names = ["ps-0", "ps-1", "ps-2", "ps-0"]
    mover = threading.Thread(target=lambda: [cluster.move(names[i % 3], names[i % 3 + 1]) for i in range(9)], daemon=True)
    with scar.join(cluster.address, "worker-0", timeout=20) as worker:
        mover.start()
        while mover.is_alive():
            work(worker, worker.clock_number + 1)
        pushes = worker.clock_number
    check(cluster, pushes)
    assert worker.reroutes == 9
    assert not any(report.lost for report in cluster.recovery.reports)


def test_rollback_voids_what_was_computed_from_values_that_are_gone(start: Start) -> None:
    cluster = start("bsp")
    with scar.join(cluster.address, "worker-0", timeout=20) as worker:
        work(worker, 2)
        worker.pull("w")
        cluster.save()  # contains clocks 0 and 1
        work(worker, 4)
        worker.pull("w")
        worker.push({"w": np.ones((12, 2)), "n": np.ones((10, 2))})
        cluster.roll_back()
        while worker.epoch < cluster.epoch.number:
            time.sleep(0.01)
        worker.push("w", np.full((12, 2), 100.0))  # of the same clock: its gradient is of the lost values
        worker.clock()
        np.testing.assert_array_equal(worker.pull("w"), np.full((12, 2), 2.0))
        work(worker, 7)
    np.testing.assert_array_equal(cluster.model()["w"], np.full((12, 2), 4.0))
    lost = [entry for report in cluster.recovery.reports for entry in report.lost]
    assert {(entry.table, entry.after, entry.upto) for entry in lost} == {("w", 2, 5), ("n", 2, 5)}


def test_the_report_measures_the_perturbation_exactly(start: Start) -> None:
    cluster = start("bsp")
    with scar.join(cluster.address, "worker-0", timeout=20) as worker:
        work(worker, 3)
        cached = worker.pull(["w", "n"])  # clocks 0 to 2; x(0) is zero
        owned = cluster.epoch.owned_by(cluster.shards["ps-1"].member.key)
        worker.push("w", np.full((12, 2), 50.0))  # must not count: it was not in the values that died
        cluster.kill("ps-1")
        cluster.recover(["ps-1"])
        worker.clock()
        while not cluster.recovery.reports:
            time.sleep(0.01)
    (report,) = cluster.recovery.reports
    assert {delta.table: delta.blocks for delta in report.delta} == {name: len(ids) for name, ids in owned.items() if len(ids)}
    for delta in report.delta:
        rows = np.diff(cluster.job.table(delta.table).row_offsets)[owned[delta.table]].sum()
        assert delta.squared == rows * 2 * cached[delta.table][0, 0] ** 2
    assert report.resent == 1


@pytest.mark.parametrize("error", [errors.NotServing("lease"), errors.Unreachable("gone"), errors.Busy("full")])
@pytest.mark.parametrize("method", ["Push", "Pull", "Clock", "Settle"])
def test_what_passes_by_itself_is_no_error(start: Start, method: str, error: errors.ScarError) -> None:
    cluster = start("bsp")

    def fail() -> None:
        raise error

    for shard in cluster.shards.values():
        shard.faults[method] = fail
    with scar.join(cluster.address, "worker-0", timeout=20) as worker:
        work(worker, 3)
    check(cluster, 3)


def test_a_broken_connection_is_no_second_push(start: Start) -> None:
    """The shard applied the push and its answer was lost: the repeat is a duplicate."""
    cluster = start("asp")

    def lose_answer() -> None:
        raise errors.Unreachable("the answer was lost")

    with scar.join(cluster.address, "worker-0", timeout=20) as worker:
        for shard in cluster.shards.values():
            shard.faults["Ack"] = lose_answer
        work(worker, 2)
    check(cluster, 2)


def test_the_coordinator_is_away(start: Start) -> None:
    """Healthy shards are served meanwhile; the dead one's blocks wait for its return."""
    cluster = start("asp")
    with scar.join(cluster.address, "worker-0", timeout=20) as worker:
        work(worker, 2)
        cluster.recovery.stop()
        work(worker, 4)
        cluster.kill("ps-0")
        threading.Timer(0.3, lambda: (cluster.recovery.start(), cluster.recover(["ps-0"]))).start()
        work(worker, 6)
    check(cluster, 6)


def test_deadline_says_what_was_waited_for(start: Start) -> None:
    cluster = start("bsp")
    worker = scar.join(cluster.address, "worker-0", timeout=0.5)
    cluster.kill("ps-2")
    worker.push("w", np.ones((12, 2)))
    with pytest.raises(errors.DeadlineExceeded, match="ps-2"):
        worker.clock()
    with pytest.raises(errors.DeadlineExceeded, match=r"blocks of w at clock 0 .* last problem: ps-2"):
        worker.pull("w")
    assert worker.clock_number == 0
    cluster.recover(["ps-2"])
    worker.clock()  # the same clock, once more
    assert worker.clock_number == 1
    worker.close()


def test_a_fenced_worker_stops(start: Start) -> None:
    cluster = start("bsp")
    worker = scar.join(cluster.address, "worker-0", timeout=20)
    cluster.recovery.commit(replace(cluster.epoch, number=cluster.epoch.number + 1, workers=()))
    with pytest.raises(errors.Fenced, match="worker-0"):
        work(worker, 100_000)
    worker.close()


@pytest.mark.parametrize("method", ["Push", "Pull", "Clock", "Settle"])
@pytest.mark.parametrize(
    "error", [errors.OutOfOrder("gap"), errors.Fenced("dead"), errors.Internal("bug"), errors.ShapeMismatch("no")]
)
def test_what_does_not_pass_is_raised_as_it_is(start: Start, method: str, error: errors.ScarError) -> None:
    cluster = start("bsp")

    def fail() -> None:
        raise error

    for shard in cluster.shards.values():
        shard.faults[method] = fail
    with pytest.raises(type(error)) as caught:
        train(cluster.address)
    assert caught.value.message == error.message
