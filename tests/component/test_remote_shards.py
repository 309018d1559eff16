"""What the recovery coordinator finds out about members by asking them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from unittest.mock import Mock

import grpc
import pytest

from scar.placement import Member, Role
from scar.v1 import member_pb2_grpc, types_pb2, worker_pb2, worker_pb2_grpc
from scar.version import PROTOCOL
from scar.wire import codec
from scar_recovery.shard_client import GrpcShardClient
from scar_recovery.unaddressed_members import UnaddressedMembers
from scar_runtime.liveness.progress_monitor import ProgressMonitor
from scar_runtime.process.member_servicer import MemberServicer
from scar_runtime.process.server import bind_port, make_server
from tests.component.recovery_cluster import NoRedis

WORKER = Member(Role.WORKER, "worker-0", "aaaaaaaaaaaa")


class Worker(worker_pb2_grpc.WorkerServicer):
    """One that waits for job "mine" at first."""

    def __init__(self) -> None:
        self.state, self.job = "waiting", "mine"

    def Status(
        self, request: worker_pb2.WorkerStatusRequest, context: grpc.ServicerContext
    ) -> worker_pb2.WorkerStatus:
        return worker_pb2.WorkerStatus(
            member=codec.member_to_proto(WORKER), state=self.state, job=self.job, protocol=PROTOCOL
        )


@pytest.fixture
def unaddressed() -> UnaddressedMembers:
    redis = NoRedis()
    redis.beating = [replace(WORKER, name="worker-1")]
    return UnaddressedMembers(redis)  # type: ignore[arg-type]


@pytest.fixture
def shards(unaddressed: UnaddressedMembers) -> Iterator[GrpcShardClient]:
    asked = GrpcShardClient(unaddressed)
    asked.job = types_pb2.JobSpec(name="mine")
    yield asked
    asked.close()


@pytest.fixture
def served() -> Iterator[tuple[Worker, Member]]:
    servicer, server = Worker(), make_server(workers=4)
    worker_pb2_grpc.add_WorkerServicer_to_server(servicer, server)
    member_pb2_grpc.add_MemberServiceServicer_to_server(MemberServicer(WORKER, ProgressMonitor()), server)
    address = bind_port(server, "127.0.0.1:0")
    server.start()
    yield servicer, replace(WORKER, address=address)
    server.stop(0).wait(5)


@pytest.mark.parametrize(
    ("state", "job", "wanted"),
    [
        ("waiting", "mine", True),
        ("training", "mine", True),
        ("finished", "mine", False),
        ("failed", "mine", False),
        ("waiting", "other", False),
        ("training", "other", False),
    ],
)
def test_a_worker_wants_in_only_for_the_job_that_runs(
    shards: GrpcShardClient, served: tuple[Worker, Member], state: str, job: str, wanted: bool
) -> None:
    servicer, member = served
    servicer.state, servicer.job = state, job
    assert shards.candidate_protocol(member) == (PROTOCOL if wanted else None)


def test_a_shard_that_answers_wants_in(shards: GrpcShardClient, served: tuple[Worker, Member]) -> None:
    assert shards.candidate_protocol(replace(served[1], role=Role.SHARD)) == PROTOCOL


def test_a_former_life_of_a_worker_wants_nothing(
    shards: GrpcShardClient, served: tuple[Worker, Member]
) -> None:
    member = replace(served[1], incarnation="bbbbbbbbbbbb")
    assert not shards.candidate_protocol(member)
    assert shards.read_incarnation(member) == WORKER.incarnation, "its successor answers"


def test_whoever_does_not_answer_wants_nothing(
    shards: GrpcShardClient, served: tuple[Worker, Member]
) -> None:
    nobody = replace(served[1], address="127.0.0.1:1")
    assert not shards.candidate_protocol(nobody)
    assert shards.refuses_connection(nobody)
    assert shards.is_gone(nobody)


def test_elsewhere_a_rejection_is_no_certainty(
    shards: GrpcShardClient, served: tuple[Worker, Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scar_recovery.shard_client.is_ours", lambda host: False)
    nobody = replace(served[1], address="127.0.0.1:1")
    assert shards.refuses_connection(nobody)
    assert not shards.is_gone(nobody)


def test_who_has_no_address_lives_by_its_own_signs(unaddressed: UnaddressedMembers) -> None:
    asked = GrpcShardClient(unaddressed)
    assert WORKER.address == ""
    assert not asked.is_serving(WORKER)
    assert not asked.is_watched(WORKER), "it never sent a heartbeat"
    with unaddressed.waiting(WORKER.key, Mock(is_active=lambda: True)):
        assert asked.is_serving(WORKER)
    asked.close()


def test_who_was_only_asked_leaves_no_connection(
    shards: GrpcShardClient, served: tuple[Worker, Member]
) -> None:
    """A pod that is gone never comes back under its key: its connection would try to connect for ever."""
    dead = replace(served[1], address="127.0.0.1:1")
    assert not shards.candidate_protocol(dead)
    assert not shards.answers_probe(dead)
    assert not shards.is_serving(replace(dead, role=Role.SHARD))
    assert shards.links.find(dead.key) is None
    kept = shards.links.connect(served[1])
    assert shards.answers_probe(served[1])
    assert shards.links.find(served[1].key) is kept
