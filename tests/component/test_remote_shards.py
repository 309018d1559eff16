"""What the recovery coordinator finds out about members by asking them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import grpc
import pytest

from scar import codec
from scar.placement import Member, Role
from scar.v1 import member_pb2_grpc, types_pb2, worker_pb2, worker_pb2_grpc
from scar_recovery.shards import RemoteShards
from scar_runtime.heart import Heart
from scar_runtime.member import MemberServicer
from scar_runtime.server import bind, make_server

WORKER = Member(Role.WORKER, "worker-0", "aaaaaaaaaaaa")


class Worker(worker_pb2_grpc.WorkerServicer):
    """One that waits for job "mine" at first."""

    def __init__(self) -> None:
        self.state, self.job = "waiting", "mine"

    def Status(self, request: worker_pb2.WorkerStatusRequest, context: grpc.ServicerContext) -> worker_pb2.WorkerStatus:
        return worker_pb2.WorkerStatus(member=codec.member_to_proto(WORKER), state=self.state, job=self.job)


@pytest.fixture
def shards() -> Iterator[RemoteShards]:
    asked = RemoteShards()
    asked.job = types_pb2.JobSpec(name="mine")
    yield asked
    asked.close()


@pytest.fixture
def served() -> Iterator[tuple[Worker, Member]]:
    servicer, server = Worker(), make_server(workers=4)
    worker_pb2_grpc.add_WorkerServicer_to_server(servicer, server)
    member_pb2_grpc.add_MemberServiceServicer_to_server(MemberServicer(WORKER, Heart()), server)
    address = bind(server, "127.0.0.1:0")
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
    shards: RemoteShards, served: tuple[Worker, Member], state: str, job: str, wanted: bool
) -> None:
    servicer, member = served
    servicer.state, servicer.job = state, job
    assert shards.wants_in(member) is wanted


def test_a_former_life_of_a_worker_wants_nothing(shards: RemoteShards, served: tuple[Worker, Member]) -> None:
    member = replace(served[1], incarnation="bbbbbbbbbbbb")
    assert not shards.wants_in(member)
    assert shards.incarnation(member) == WORKER.incarnation, "its successor answers"


def test_whoever_does_not_answer_wants_nothing(shards: RemoteShards, served: tuple[Worker, Member]) -> None:
    nobody = replace(served[1], address="127.0.0.1:1")
    assert not shards.wants_in(nobody)
    assert shards.refuses(nobody)
    assert shards.gone(nobody)


def test_elsewhere_a_rejection_is_no_certainty(
    shards: RemoteShards, served: tuple[Worker, Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scar_recovery.shards.is_ours", lambda host: False)
    nobody = replace(served[1], address="127.0.0.1:1")
    assert shards.refuses(nobody)
    assert not shards.gone(nobody)
