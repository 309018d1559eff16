"""Nobody speaks for another member: calls that do need the secret with which that incarnation joined."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from scar.errors import PermissionDenied
from scar.member_secrets import SECRET_BYTES, hash_secret
from scar.placement import Member
from scar.v1 import recovery_pb2 as pb
from scar.v1 import types_pb2
from scar.version import PROTOCOL
from scar.wire import codec
from scar_runtime.process.story_codec import story_to_proto
from scar_runtime.store.directory import DirectoryStore
from tests.component.recovery_cluster import SECRET, Cluster, wait_for

WRONG = (b"", b"x" * SECRET_BYTES, SECRET[:-1], hash_secret(SECRET))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    found = Cluster(DirectoryStore(str(tmp_path), tmp_path))
    yield found
    found.close()


def hire(cluster: Cluster) -> types_pb2.Member:
    """A worker that is part of an epoch."""
    worker = cluster.worker("worker-0")
    cluster.epoch_with(lambda epoch: bool(epoch.workers))
    return worker


def refuse_all(cluster: Cluster, worker: types_pb2.Member, shard: types_pb2.Member) -> None:
    for secret in WRONG:
        for method, request in (
            (cluster.stub.Leave, pb.LeaveRequest(member=worker, secret=secret)),
            (cluster.stub.Leave, pb.LeaveRequest(member=shard, secret=secret)),
            (cluster.stub.Renew, pb.RenewRequest(member=shard, secret=secret)),
            (cluster.stub.ReportReroute, pb.RerouteReport(worker=worker, epoch=1, secret=secret)),
            (cluster.stub.Join, pb.JoinRequest(member=worker, secret=secret, protocol=PROTOCOL)),
            (cluster.stub.GetEpochs, pb.GetEpochsRequest(worker=worker, secret=secret)),
        ):
            with pytest.raises(PermissionDenied):
                cluster.link.call(method, request, 10)


def test_who_does_not_show_the_secret_is_not_that_member(cluster: Cluster) -> None:
    shard = cluster.start()[0].member
    worker = hire(cluster)
    refuse_all(cluster, worker, shard)
    assert cluster.session is not None
    assert cluster.epochs()[-1].workers, "nothing has happened to it"
    assert cluster.failures() == []
    cluster.join(worker)  # once more: its first answer was lost
    cluster.call(cluster.stub.Renew, pb.RenewRequest(member=shard))
    cluster.call(cluster.stub.ReportReroute, pb.RerouteReport(worker=worker, epoch=1))
    cluster.call(cluster.stub.Leave, pb.LeaveRequest(member=worker))
    cluster.epoch_with(lambda epoch: epoch.number > 2 and not epoch.workers)


def test_the_next_leader_knows_who_everybody_is(cluster: Cluster) -> None:
    shard = cluster.start()[0].member
    worker = hire(cluster)
    cluster.lead()
    refuse_all(cluster, worker, shard)
    cluster.call(cluster.stub.Leave, pb.LeaveRequest(member=worker))


def test_a_member_that_is_recalled_by_its_heartbeat_is_nobody_else(cluster: Cluster) -> None:
    shard = cluster.start()[0].member
    waiting = Member(
        codec.member_from_proto(shard).role, "ps-9", "9" * 12, "127.0.0.1:9", hash_secret(SECRET)
    )
    cluster.heartbeats.beating = [waiting]
    cluster.take_lead()
    session = cluster.session
    assert session is not None
    session.members._shards.candidate_protocol = lambda _member: PROTOCOL  # type: ignore[method-assign]
    cluster.open(session)
    message = codec.member_to_proto(waiting)
    with pytest.raises(PermissionDenied):
        cluster.link.call(cluster.stub.Leave, pb.LeaveRequest(member=message, secret=WRONG[1]), 10)
    cluster.call(cluster.stub.Leave, pb.LeaveRequest(member=message))


def test_who_has_left_keeps_its_secret(cluster: Cluster) -> None:
    """It may have reports to make."""
    cluster.start()
    worker = hire(cluster)
    cluster.call(cluster.stub.Leave, pb.LeaveRequest(member=worker))
    cluster.epoch_with(lambda epoch: epoch.number > 2 and not epoch.workers)
    with pytest.raises(PermissionDenied):
        cluster.link.call(
            cluster.stub.ReportReroute, pb.RerouteReport(worker=worker, epoch=1, secret=WRONG[1]), 10
        )
    cluster.call(cluster.stub.ReportReroute, pb.RerouteReport(worker=worker, epoch=1))


@pytest.mark.parametrize("secret", [b"", b"short", b"s" * (SECRET_BYTES + 1)])
def test_nobody_joins_without_a_secret(cluster: Cluster, secret: bytes) -> None:
    cluster.lead()
    stranger = types_pb2.Member(role=types_pb2.ROLE_WORKER, name="worker-0", incarnation="1" * 12)
    stranger.secret_hash = hash_secret(secret)
    request = pb.JoinRequest(member=stranger, secret=secret, protocol=PROTOCOL)
    with pytest.raises(PermissionDenied, match="without a secret"):
        cluster.link.call(cluster.stub.Join, request, 10)


def test_a_secret_is_neither_told_nor_stored_nor_logged(
    cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        shard = cluster.start()[0].member
        worker = hire(cluster)
        refuse_all(cluster, worker, shard)
        cluster.call(cluster.stub.Leave, pb.LeaveRequest(member=worker))
        wait_for(lambda: not cluster.epochs()[-1].workers)
    assert cluster.session is not None
    story = story_to_proto([cluster.session.story()], 0)
    told = [
        cluster.status().SerializeToString(),
        *(entry.SerializeToString() for entry in story),
        *(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()),
        *(repr(vars(record)).encode() for record in caplog.records),
    ]
    for text in told:
        for form in (SECRET, SECRET.hex().encode()):
            assert form not in text
