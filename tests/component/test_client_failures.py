"""Shards and the coordinator die at every kind of call. Training goes on; every push is in the model or in
a report, once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import grpc
import numpy as np
import pytest

import scar
from scar import errors
from scar.v1 import recovery_pb2
from scar.wire.lost_pushes import unpack_losses
from tests.component.fakes.cluster import FakeCluster, FakeRecovery
from tests.component.processes import eventually

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
            loss = unpack_losses(entry)
            lost[entry.table][loss.ids] += loss.upto - loss.after
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
    assert [shard.name for shard in cluster.epoch.shards] == ["ps-5"]
    check(cluster, 6)


@pytest.mark.parametrize("consistency", ["bsp", "asp"])
def test_live_moves_lose_nothing(start: Start, consistency: str) -> None:
    """Blocks go round while pushes are under way; what their new owner lacks is sent again, and nothing is
    reported lost.
    """
    cluster = start(consistency)
    names = ["ps-0", "ps-1", "ps-2", "ps-0"]
    mover = threading.Thread(
        target=lambda: [cluster.move(names[i % 3], names[i % 3 + 1]) for i in range(9)], daemon=True
    )
    with scar.join(cluster.address, "worker-0", timeout=20) as worker:
        mover.start()
        while mover.is_alive():
            work(worker, worker.clock_number + 1)
        pushes = worker.clock_number
    check(cluster, pushes)
    assert worker.reroutes == 9
    assert not any(report.lost for report in cluster.recovery.reports)


def test_leaving_finishes_the_clock_that_a_late_push_joins(start: Start) -> None:
    """It used to wait until its deadline: only a push of an open clock made it finish one clock more."""
    cluster = start("bsp")

    def move_after_the_heir_has_closed_the_clock() -> None:
        eventually(lambda: cluster.shards["ps-0"].clock == 2)
        cluster.move("ps-1", "ps-0")

    with scar.join(cluster.address, "worker-0", timeout=10) as worker:
        work(worker, 1)
        eventually(lambda: cluster.shards["ps-1"].clock == 1)
        cluster.shards["ps-1"].faults["Clock"] = move_after_the_heir_has_closed_the_clock
        work(worker, 2)
    check(cluster, 2)


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
    lost = [unpack_losses(entry) for report in cluster.recovery.reports for entry in report.lost]
    assert {(one.table, *one.ranges) for one in lost} == {("w", (2, 5)), ("n", (2, 5))}


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
    assert {delta.table: delta.blocks for delta in report.delta} == {
        name: len(ids) for name, ids in owned.items() if len(ids)
    }
    for delta in report.delta:
        rows = np.diff(cluster.job.table(delta.table).row_offsets)[owned[delta.table]].sum()
        assert delta.squared == rows * 2 * cached[delta.table][0, 0] ** 2
    assert not any(delta.behind for delta in report.delta)
    assert report.resent == 1


def test_values_that_were_pulled_a_clock_before_are_not_called_those_that_died(start: Start) -> None:
    cluster = start("bsp")
    with scar.join(cluster.address, "worker-0", timeout=20) as worker:
        work(worker, 3)
        worker.pull(["w", "n"])
        worker.push("w", np.full((12, 2), 50.0))
        worker.clock()  # now the shards have it, and this worker has not seen it
        cluster.kill("ps-1")
        cluster.recover(["ps-1"])
        worker.pull("w")
        while not cluster.recovery.reports:
            time.sleep(0.01)
    (report,) = cluster.recovery.reports
    assert report.delta
    assert all(delta.behind for delta in report.delta)


def test_blocks_that_die_again_before_they_are_pulled_are_not_called_those_that_were(start: Start) -> None:
    cluster = start("bsp", shards=3)
    with scar.join(cluster.address, "worker-0", timeout=20) as worker:
        work(worker, 3)
        worker.pull(["w", "n"])
        for reported, victim in enumerate(("ps-1", "ps-2")):
            cluster.kill(victim)
            cluster.recover([victim])
            while len(cluster.recovery.reports) == reported:
                time.sleep(0.01)
        work(worker, 4)
    first, second = cluster.recovery.reports
    assert not any(delta.behind for delta in first.delta)
    assert any(delta.behind for delta in second.delta)


@pytest.mark.parametrize(
    "error", [errors.NotServing("lease"), errors.Unreachable("gone"), errors.Busy("full")]
)
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
    worker._client.timeout = 30  # on a slow machine, too
    worker.clock()  # the same clock, once more
    assert worker.clock_number == 1
    worker.close()


def away(cluster: FakeCluster, worker: scar.Worker) -> None:
    """A shard dies, and the epoch for it waits for the store; the worker has heard of that."""
    cluster.recovery.outage = "epoch 3 (failure) waits for the store"
    deadline = time.monotonic() + 20
    while not worker._client.view.outage:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    cluster.kill("ps-2")


def test_while_recovery_waits_for_the_store_nobody_gives_up(start: Start) -> None:
    cluster = start("bsp")
    with scar.join(cluster.address, "worker-0", timeout=0.5) as worker:
        away(cluster, worker)
        worker.push("w", np.ones((12, 2)))
        threading.Timer(1.5, cluster.recover, (["ps-2"],)).start()  # three times what an operation may take
        worker.clock()
        cluster.recovery.outage = ""
        assert worker.clock_number == 1
        worker._client.timeout = 30  # to leave, on a slow machine, too


def test_such_a_wait_can_be_bounded_and_says_what_it_waits_for(start: Start) -> None:
    cluster = start("bsp")
    worker = scar.join(cluster.address, "worker-0", timeout=0.2, outage_timeout=0.3)
    away(cluster, worker)
    worker.push("w", np.ones((12, 2)))
    with pytest.raises(errors.DeadlineExceeded, match=r"epoch 3 .failure. waits for the store"):
        worker.clock()
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
    "error",
    [errors.OutOfOrder("gap"), errors.Fenced("dead"), errors.Internal("bug"), errors.ShapeMismatch("no")],
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


def test_a_worker_leaves_when_recovery_has_its_reports(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once it has left the epoch nobody waits for its word any more."""
    refusals = [errors.StoreFull("no space")] * 3
    take, leave = FakeRecovery.ReportReroute, FakeRecovery.Leave
    order: list[str] = []

    def refuse(
        self: FakeRecovery, request: recovery_pb2.RerouteReport, context: grpc.ServicerContext
    ) -> object:
        if request.first:
            return take(self, request, context)
        if refusals:
            error = refusals.pop()
            context.set_trailing_metadata(errors.to_metadata(error))
            context.abort(error.code, error.message)
        order.append("report")
        return take(self, request, context)

    def left(self: FakeRecovery, request: object, context: object) -> object:
        order.append("leave")
        return leave(self, request, context)

    monkeypatch.setattr(FakeRecovery, "ReportReroute", refuse)
    monkeypatch.setattr(FakeRecovery, "Leave", left)
    cluster = start("asp")
    with scar.join(cluster.recovery.address, "worker-0", timeout=20) as worker:
        for clock in worker.clocks(limit=3):
            worker.pull("w")
            worker.push("w", np.ones((12, 2)))
            if clock == 1:
                cluster.kill("ps-1")
                cluster.recover(["ps-1"])
    assert order[-1] == "leave"
    assert "report" in order
    assert not refusals


def at_clock_one(cluster: FakeCluster) -> scar.Worker:
    """A worker that has finished clock 0, as every shard knows."""
    worker = scar.join(cluster.address, "worker-0", timeout=20)
    worker.clock()
    end = time.monotonic() + 20
    while any(shard.marks.get("worker-0", (0, 0))[0] < 1 for shard in cluster.shards.values()):
        assert time.monotonic() < end
        time.sleep(0.005)
    return worker


def test_a_worker_that_was_replaced_hears_of_it_before_its_clock_counts(start: Start) -> None:
    """It was frozen after its pushes were acknowledged: they go when its successor does the clock again."""
    cluster = start("bsp")
    worker = at_clock_one(cluster)

    def fenced() -> None:
        raise errors.Fenced("worker-0 was declared dead in epoch 3")

    cluster.shards["ps-1"].faults["Clock"] = fenced
    worker.push("w", np.ones((12, 2)))
    with pytest.raises(errors.Fenced):
        worker.clock()
    worker.close()


@pytest.mark.parametrize("consistency", ["bsp", "asp"])
def test_a_clock_that_is_tried_again_is_finished_once(start: Start, consistency: str) -> None:
    cluster, goes_on = start(consistency), threading.Event()
    worker = at_clock_one(cluster)
    cluster.shards["ps-1"].faults["Clock"] = lambda: goes_on.wait(20)
    if consistency == "bsp":
        worker._client.timeout = 0.1
        with pytest.raises(errors.DeadlineExceeded, match="every shard to take the mark"):
            worker.clock()
        worker._client.timeout = 20
        goes_on.set()
    worker.clock()
    assert worker.clock_number == 2
    goes_on.set()
    worker.close()


def test_a_clock_is_not_finished_while_a_push_has_nowhere_to_go(start: Start) -> None:
    """Every shard is dead: what is pushed waits beside the lanes, and that is no acknowledgement."""
    cluster = start("asp", 1)
    with scar.join(cluster.address, "worker-0", timeout=20) as worker:
        work(worker, 2)
        names = [*cluster.shards]
        for name in names:
            cluster.kill(name)
        cluster.recover(names)
        while worker.epoch < cluster.epoch.number:
            time.sleep(0.01)
        worker.push({"w": np.ones((12, 2)), "n": np.ones((10, 2))})
        finished = threading.Event()
        threading.Thread(target=lambda: (worker.clock(), finished.set()), daemon=True).start()
        assert not finished.wait(0.5)
        cluster.add("ps-9", "9" * 12)
        assert finished.wait(20)
