"""The recovery coordinator behind real gRPC on loopback, over shards that follow the protocol."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scar.errors import Diverged, Fenced, InvalidRequest, JobExists, NotServing, ScarError, StoreUnavailable
from scar.placement import BlockSource, Member, Role
from scar.tables import Job, Table, given
from scar.v1 import recovery_pb2 as pb
from scar.v1 import types_pb2
from scar.wire import codec
from scar_chaos.oracles.checkers import epochs_linear
from scar_runtime.store import open_store
from scar_runtime.store.directory import DirectoryStore
from scar_runtime.store.failure_log import FailureLog
from scar_runtime.store.records import create_record, get_record
from tests.component.recovery_cluster import Cluster, ShardServer, wait_for
from tests.framework.lost import lost

SECONDS = 40.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    store = open_store(f"file://{tmp_path}")
    assert isinstance(store, DirectoryStore)
    found = Cluster(store)
    yield found
    found.close()


def held(servers: list[ShardServer]) -> np.ndarray:
    """The value of every block."""
    values = np.stack([server.shard.values for server in servers])
    assert bool(((values >= 0).sum(axis=0) == 1).all()), "a block has no owner or two"
    return values.max(axis=0)


def test_start_and_workers(cluster: Cluster) -> None:
    servers = cluster.start()
    status = cluster.status()
    assert (status.leader, status.epoch, status.job, status.problem) == (True, 1, "test", "")
    worker = cluster.worker("worker-0")
    epoch = cluster.epoch_with(lambda epoch: bool(epoch.workers))
    assert [member.name for member in epoch.workers] == ["worker-0"]
    assert {member.name for member in cluster.status().members} == {
        "recovery-0",
        "ps-0",
        "ps-1",
        "ps-2",
        "worker-0",
    }
    cluster.call(cluster.stub.Leave, pb.LeaveRequest(member=worker, finished=True))
    assert cluster.epoch_with(lambda epoch: not epoch.workers and epoch.number > 2).cause == "workers"
    wait_for(lambda: all(server.number == 3 for server in servers))
    with pytest.raises(JobExists):
        cluster.call(cluster.stub.StartJob, pb.StartJobRequest(job=codec.job_to_proto(cluster.job)))
    cluster.call(cluster.stub.StartJob, pb.StartJobRequest(job=codec.job_to_proto(cluster.job), resume=True))
    other = Job("other", cluster.job.tables)
    with pytest.raises(NotServing, match="no checkpoint coordinator"):  # what was learned would be lost
        cluster.call(cluster.stub.StartJob, pb.StartJobRequest(job=codec.job_to_proto(other)))
    cluster.worker("worker-1")
    cluster.epoch_with(lambda epoch: bool(epoch.workers))
    with pytest.raises(JobExists, match="worker-1 train it"):
        cluster.call(cluster.stub.StartJob, pb.StartJobRequest(job=codec.job_to_proto(other)))
    reply = cluster.call(cluster.stub.GetJob, pb.GetJobRequest())
    assert isinstance(reply, pb.GetJobReply)
    assert reply.started
    assert codec.job_from_proto(reply.job).name == "test"


def test_a_strategy_is_chosen_when_the_job_starts_and_kept_while_it_runs(cluster: Cluster) -> None:
    cluster.job = replace(cluster.job, recovery="auto", server_mtbf=60.0)
    cluster.start()
    started = cluster.call(cluster.stub.GetJob, pb.GetJobRequest())
    assert isinstance(started, pb.GetJobReply)
    assert "every 60 s (given)" in started.job.choice.reason
    asked = codec.job_to_proto(replace(cluster.job, choice=None))
    cluster.call(cluster.stub.StartJob, pb.StartJobRequest(job=asked, resume=True))  # it runs already
    cluster.lead()
    now = cluster.call(cluster.stub.GetJob, pb.GetJobRequest())
    assert isinstance(now, pb.GetJobReply)
    assert now.job == started.job


def test_a_job_names_the_array_that_was_given_by_its_digest(cluster: Cluster) -> None:
    array = np.arange(72, dtype=np.float32).reshape(24, 3)
    table = Table("a", array.shape, init=given(array))
    cluster.job = replace(cluster.job, tables=(table, *cluster.job.tables[1:]))
    cluster.start()
    reply = cluster.call(cluster.stub.GetJob, pb.GetJobRequest())
    assert isinstance(reply, pb.GetJobReply)
    digest = hashlib.sha256(array.tobytes()).hexdigest()
    assert [one.init.key for one in reply.job.tables] == [f"init/a@{digest}", "", ""]


def test_workers_of_a_resumed_job_wait_for_each_other(cluster: Cluster) -> None:
    cluster.job = replace(cluster.job, workers=2)
    cluster.start()
    workers = [cluster.worker("worker-0"), cluster.worker("worker-1")]
    assert not cluster.epoch_with(lambda epoch: len(epoch.workers) == 2).awaits_workers
    for worker in workers:
        cluster.call(cluster.stub.Leave, pb.LeaveRequest(member=worker))
    cluster.epoch_with(lambda epoch: not epoch.workers)
    cluster.call(cluster.stub.StartJob, pb.StartJobRequest(job=codec.job_to_proto(cluster.job), resume=True))
    cluster.worker("worker-0")
    assert cluster.epoch_with(lambda epoch: len(epoch.workers) == 1).awaits_workers
    cluster.worker("worker-1")
    assert not cluster.epoch_with(lambda epoch: len(epoch.workers) == 2).awaits_workers


@pytest.mark.timed
def test_death_is_repaired_at_once_and_booked(cluster: Cluster) -> None:
    servers = cluster.start()
    worker = cluster.worker("worker-0")
    cluster.epoch_with(lambda epoch: bool(epoch.workers))
    wait_for(lambda: all(server.number == 2 for server in servers))
    for server in servers:
        server.slow = 0.2
    begin = time.monotonic()
    cluster.die(servers[1])
    epoch = cluster.epoch_with(lambda epoch: epoch.cause == "failure")
    wait_for(lambda: servers[0].number == servers[2].number == 3)
    assert time.monotonic() - begin < 0.5
    assert epoch.fenced == (servers[1].shard.member.incarnation,)
    wait_for(lambda: not cluster.status().recovering)
    (record,) = cluster.failures()
    assert (record.number, record.epoch, record.lost_blocks, record.clock) == (1, 3, 20, 7)
    assert record.load_seconds >= 0.19
    assert record.waiting == [f"worker-0@{worker.incarnation}"]
    report = pb.RerouteReport(epoch=3, worker=worker, lost=[lost("a", [1], 2, 5)])
    report.delta.add(table="a", squared=4.0, blocks=20)
    cluster.call(cluster.stub.ReportReroute, report)
    (record,) = FailureLog(cluster.store.under("test")).read(lost=True)
    assert [one.worker for one in record.lost] == [f"worker-0@{worker.incarnation}"]
    assert (list(record.waiting), record.lost_pushes, record.delta_norm) == ([], 3, 2.0)
    assert record.load_seconds > 0


@pytest.mark.parametrize("what", [{"lost": [lost("a", [1], 2, 5)]}, {"resent": 3}], ids=["lost", "resent"])
def test_a_report_is_taken_only_when_a_successor_would_find_it(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, what: dict[str, Any]
) -> None:
    servers = cluster.start()
    worker = cluster.worker("worker-0")
    cluster.epoch_with(lambda epoch: bool(epoch.workers))
    cluster.die(servers[1])
    epoch = cluster.epoch_with(lambda epoch: epoch.cause == "failure")
    report = pb.RerouteReport(epoch=epoch.number, worker=worker, **what)

    def down(*_: object) -> None:
        raise StoreUnavailable("the store is down")

    with monkeypatch.context() as patch:
        patch.setattr(DirectoryStore, "create", down)
        with pytest.raises(StoreUnavailable):
            cluster.call(cluster.stub.ReportReroute, report)
    cluster.call(cluster.stub.ReportReroute, report)
    cluster.resign()
    cluster.lead()
    wait_for(lambda: [record.lost_pushes + record.resent_pushes for record in cluster.failures()] == [3])


def test_the_ledger_is_listed_in_pages(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """One answer that held all of it became too large for a message."""
    monkeypatch.setattr("scar_recovery.ledger_writer.PAGE", 2)
    servers = cluster.start()
    for _ in range(3):
        worker = cluster.worker("worker-0")  # takes the place of the one before
        cluster.epoch_with(
            lambda epoch, worker=worker: [m.incarnation for m in epoch.workers] == [worker.incarnation]
        )
    cluster.die(servers[1])
    cluster.epoch_with(lambda epoch: len(epoch.shards) == 2)
    wait_for(lambda: [record.number for record in cluster.failures()] == [1, 2, 3])
    reply = cluster.call(cluster.stub.ListFailures, pb.ListFailuresRequest())
    assert isinstance(reply, pb.ListFailuresReply)
    assert ([record.number for record in reply.failures], reply.more) == ([1, 2], True)


def test_a_deposed_leader_takes_no_report(cluster: Cluster) -> None:
    servers = cluster.start()
    worker = cluster.worker("worker-0")
    cluster.epoch_with(lambda epoch: bool(epoch.workers))
    cluster.die(servers[1])
    number = cluster.epoch_with(lambda epoch: epoch.cause == "failure").number
    store = cluster.store.under("test")
    rival = get_record(store, f"epochs/{number:08d}", types_pb2.Epoch)
    rival.number, rival.author = number + 1, "rival"
    create_record(store, f"epochs/{number + 1:08d}", rival)
    with pytest.raises(NotServing):
        cluster.call(cluster.stub.ReportReroute, pb.RerouteReport(epoch=number, worker=worker))


def test_suspect_that_answers_is_spared_and_a_silent_one_is_not(cluster: Cluster) -> None:
    servers = cluster.start()
    report = pb.FailureReport(member=servers[0].member, silence=0.3)

    def suspected() -> bool:  # a late answer to Adopt is a sign of life, too
        cluster.call(cluster.stub.ReportFailure, report)
        return "silent" in cluster.status().problem

    wait_for(suspected)
    wait_for(lambda: not cluster.status().problem)
    assert cluster.status().epoch == 1
    servers[0].serving = False  # it answers, but its lease has run out: it is as good as dead
    begin = time.monotonic()
    cluster.call(cluster.stub.ReportFailure, report)
    epoch = cluster.epoch_with(lambda epoch: epoch.cause == "failure")
    assert time.monotonic() - begin >= 0.15
    assert epoch.fenced == (servers[0].shard.member.incarnation,)
    wait_for(lambda: not servers[0].shard.running)  # and it is told


def test_joining_shard_gets_its_share_without_a_changed_value(cluster: Cluster) -> None:
    servers = [*cluster.start(), cluster.shard("ps-3")]
    cluster.join(servers[3].member)
    epoch = cluster.balanced(4)
    wait_for(lambda: all(server.number == epoch.number for server in servers))
    assert held(servers).tolist() == list(range(1, 61))
    assert {group.source for found in cluster.epochs()[1:] for group in found.moved} == {BlockSource.DONOR}
    epochs_linear(cluster.job, cluster.epochs())


def test_leaving_shard_hands_everything_over(cluster: Cluster) -> None:
    servers = cluster.start()

    def left() -> bool:
        reply = cluster.call(cluster.stub.Leave, pb.LeaveRequest(member=servers[2].member))
        assert isinstance(reply, pb.LeaveReply)
        return reply.remaining == 0

    assert not left()
    wait_for(left)
    epoch = cluster.balanced(2)
    wait_for(lambda: all(server.number == epoch.number for server in servers[:2]))
    assert held(servers[:2]).tolist() == list(range(1, 61))
    with pytest.raises(Fenced):
        cluster.join(servers[2].member)


def test_next_leader_goes_on(cluster: Cluster) -> None:
    servers = cluster.start()
    waiting = cluster.shard("ps-3")
    cluster.resign()
    with pytest.raises(NotServing):
        cluster.join(waiting.member)
    assert not cluster.status().leader
    servers[1].server.stop(0)  # it dies while nobody leads
    cluster.lead()
    epoch = cluster.epoch_with(lambda epoch: epoch.cause == "failure")
    assert [member.name for member in epoch.shards] == ["ps-0", "ps-2"]
    assert [epoch.cause for epoch in cluster.epochs()] == ["start", "leader", "failure"]
    wait_for(lambda: servers[0].number == servers[2].number == 3)


def test_what_a_leader_hears_before_it_has_read_the_epochs_is_asked_for_again(cluster: Cluster) -> None:
    """All members are strangers to it then: a death or a farewell would be lost, and training would wait
    forever.
    """
    cluster.start()
    dead, gone = cluster.worker("worker-0"), cluster.worker("worker-1")
    cluster.epoch_with(lambda epoch: len(epoch.workers) == 2)
    session = cluster.take_lead()
    news = (
        (cluster.stub.ReportFailure, pb.FailureReport(member=dead, proved=True)),
        (cluster.stub.Leave, pb.LeaveRequest(member=gone)),
    )
    for method, message in news:
        with pytest.raises(NotServing):
            cluster.call(method, message)
    cluster.open(session)
    for method, message in news:
        cluster.call(method, message)
    cluster.epoch_with(lambda epoch: not epoch.workers)


def test_whole_cluster_comes_back(cluster: Cluster) -> None:
    for server in cluster.start():
        server.server.stop(0)
    cluster.lead()
    cluster.epoch_with(lambda epoch: not epoch.shards)
    assert "no shard is left" in cluster.status().problem
    fresh = [cluster.shard(f"ps-{number}") for number in range(3)]
    for server in fresh:
        cluster.join(server.member)
    epoch = cluster.balanced(3)
    wait_for(lambda: all(server.number == epoch.number for server in fresh))
    assert held(fresh).tolist() == [0] * 60
    wait_for(lambda: not cluster.status().problem)


def test_members_known_only_from_their_heartbeats_are_taken_in(cluster: Cluster) -> None:
    cluster.start()
    detector = Member(Role.DETECTOR, "detector-0", "d" * 12, "host:2")
    cluster.heartbeats.beating = [detector]
    cluster.lead()
    wait_for(lambda: "detector-0" in {member.name for member in cluster.status().members})


def test_lease_of_last_resort(cluster: Cluster) -> None:
    servers = cluster.start()
    renew = pb.RenewRequest(member=servers[0].member)
    reply = cluster.call(cluster.stub.Renew, renew)
    assert isinstance(reply, pb.RenewReply)
    assert reply.epoch == 1
    cluster.die(servers[1])
    cluster.epoch_with(lambda epoch: epoch.cause == "failure")
    with pytest.raises(Fenced):
        cluster.call(cluster.stub.Renew, pb.RenewRequest(member=servers[1].member))
    # somebody else has created the next epoch: this leader may not lengthen a lease any more, and steps down
    store = cluster.store.under("test")
    rival = get_record(store, "epochs/00000002", types_pb2.Epoch)
    rival.number, rival.author = 3, "rival"
    create_record(store, "epochs/00000003", rival)
    with pytest.raises(NotServing):
        cluster.call(cluster.stub.Renew, renew)
    assert cluster.running is not None
    cluster.running.join(SECONDS)
    assert not cluster.running.is_alive()


def test_a_worker_has_everything_go_back_once(cluster: Cluster) -> None:
    servers = cluster.start()
    worker = cluster.worker("worker-0")
    cluster.epoch_with(lambda epoch: bool(epoch.workers))
    clock = servers[0].shard.clock
    request = pb.RollbackRequest(worker=worker, clock=clock, reason="the loss is nan")
    for _ in range(2):
        cluster.call(cluster.stub.RequestRollback, request)
    epoch = cluster.epoch_with(lambda epoch: epoch.rollback)
    assert epoch.restart == clock + 3
    cluster.call(cluster.stub.RequestRollback, request)
    wait_for(lambda: len(cluster.failures()) == 1)
    record = cluster.failures()[0]
    assert (record.epoch, record.rollback) == (epoch.number, "the loss is nan, says worker-0")
    time.sleep(0.2)
    assert cluster.status().epoch == epoch.number
    with pytest.raises(InvalidRequest, match="has heard of clock 1000"):
        cluster.call(cluster.stub.RequestRollback, pb.RollbackRequest(worker=worker, clock=1000))


def test_nothing_of_before_is_kept(cluster: Cluster) -> None:
    cluster.start()
    worker = cluster.worker("worker-0")
    cluster.epoch_with(lambda epoch: bool(epoch.workers))
    with pytest.raises(Diverged, match="nothing that was saved before clock 0 is kept"):
        cluster.call(cluster.stub.RequestRollback, pb.RollbackRequest(worker=worker, clock=0))


def test_store_outage_delays_recovery(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    servers = cluster.start()

    def down(*_: object) -> None:
        raise StoreUnavailable("the store is down")

    with monkeypatch.context() as patch:
        for method in ("put", "create", "get", "list"):
            patch.setattr(DirectoryStore, method, down)
        cluster.die(servers[0])
        wait_for(lambda: "waits for the store" in cluster.status().problem)
        assert cluster.status().recovering
        assert "waits for the store" in news(cluster).outage, "workers must be able to tell it from a hang"
    epoch = cluster.epoch_with(lambda epoch: epoch.cause == "failure")
    wait_for(lambda: servers[1].number == servers[2].number == epoch.number)
    assert cluster.status().problem == ""
    assert news(cluster).outage == ""


def news(cluster: Cluster) -> pb.GetEpochsReply:
    reply = cluster.call(cluster.stub.GetEpochs, pb.GetEpochsRequest(after=1 << 32))
    assert isinstance(reply, pb.GetEpochsReply)
    return reply


def test_malformed_requests_are_refused(cluster: Cluster) -> None:
    cluster.start()
    with pytest.raises(ScarError, match="no known role"):
        cluster.join(types_pb2.Member(name="x", incarnation="1"))
    (member, *_) = (server.member for server in cluster.peers.values())
    with pytest.raises(ScarError, match="at least 0"):
        cluster.call(cluster.stub.ReportFailure, pb.FailureReport(member=member, silence=float("nan")))
    with pytest.raises(ScarError, match="at least 0"):
        cluster.call(cluster.stub.ReportFailure, pb.FailureReport(member=member, suspect_seconds=-1))
    with pytest.raises(ScarError):
        cluster.call(cluster.stub.StartJob, pb.StartJobRequest(job=types_pb2.JobSpec(name="../etc")))
