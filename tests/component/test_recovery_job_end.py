"""The end of a job through the recovery coordinator's door: leaving is durable, and then the model is."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from scar._client.recovery_client import RecoveryClient
from scar.errors import DeadlineExceeded, NotServing
from scar.v1 import checkpoint_pb2, checkpoint_pb2_grpc, types_pb2
from scar.v1 import recovery_pb2 as pb
from scar.wire.codec import member_from_proto
from scar.wire.transport import Deadline
from scar_recovery.recovery_store import RecoveryStore
from scar_runtime.process.server import make_server
from scar_runtime.store.directory import DirectoryStore
from scar_runtime.store.layout import MANIFESTS, numbered
from scar_runtime.store.records import create_record, newest
from tests.component.recovery_cluster import SECRET, Cluster, wait_for


class Rounds(checkpoint_pb2_grpc.CheckpointServicer):
    """A checkpoint coordinator that has nothing to save; it answers once ``ready`` is set."""

    def __init__(self, store: DirectoryStore) -> None:
        self._store = store
        self.ready = threading.Event()
        self.server = make_server(4)
        address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.member = types_pb2.Member(
            role=types_pb2.ROLE_CHECKPOINT, name="checkpoint-0", incarnation="c" * 12, address=address
        )
        checkpoint_pb2_grpc.add_CheckpointServicer_to_server(self, self.server)
        self.server.start()

    def Trigger(
        self, request: checkpoint_pb2.TriggerRequest, context: grpc.ServicerContext
    ) -> checkpoint_pb2.RoundReport:
        if not self.ready.is_set():
            raise NotServing("the store is away")
        number = newest(self._store, MANIFESTS) + 1
        manifest = checkpoint_pb2.Manifest(
            number=number, job="test", clock=7, epoch=3, full=request.selection == "full"
        )
        create_record(self._store, numbered(MANIFESTS, number), manifest)
        return checkpoint_pb2.RoundReport(manifest=number)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(DirectoryStore(f"file://{tmp_path}", tmp_path))
    yield made
    made.close()


@pytest.fixture
def rounds(cluster: Cluster) -> Iterator[Rounds]:
    made = Rounds(cluster.store.under("test"))
    yield made
    made.server.stop(0)


def work(cluster: Cluster, rounds: Rounds) -> types_pb2.Member:
    """A worker that is in an epoch."""
    cluster.start()
    cluster.join(rounds.member)
    worker = cluster.worker("worker-0")
    cluster.epoch_with(lambda epoch: bool(epoch.workers))
    return worker


def leave(cluster: Cluster, worker: types_pb2.Member, seconds: float = 60.0) -> None:
    office = RecoveryClient(cluster.link.address, SECRET)
    try:
        office.leave(member_from_proto(worker), True, Deadline(seconds), epoch=2)
    finally:
        office.close()


def test_a_worker_has_left_when_a_successor_knows_that_its_work_is_done(
    cluster: Cluster, rounds: Rounds
) -> None:
    worker = work(cluster, rounds)
    leave(cluster, worker)
    newest = cluster.epochs()[-1]
    assert (newest.workers, newest.finished) == ((), newest.number)


def test_without_the_store_a_worker_does_not_hear_that_it_may_go(
    cluster: Cluster, rounds: Rounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = work(cluster, rounds)

    def away(_archive: RecoveryStore, _epoch: types_pb2.Epoch) -> types_pb2.Epoch:
        raise NotServing("the store is away")

    with monkeypatch.context() as patch:
        patch.setattr(RecoveryStore, "create_epoch", away)
        with pytest.raises(DeadlineExceeded, match="not in the store yet"):
            leave(cluster, worker, 3.0)
    leave(cluster, worker)


def test_status_says_finished_when_the_model_is_durable(cluster: Cluster, rounds: Rounds) -> None:
    worker = work(cluster, rounds)
    leave(cluster, worker)
    wait_for(lambda: "is not saved yet" in cluster.status().problem)
    assert "the store is away" in cluster.status().problem
    assert not cluster.status().HasField("finished")
    rounds.ready.set()
    wait_for(lambda: cluster.status().HasField("finished"))
    said = cluster.status()
    assert (said.finished.manifest, said.finished.clock, said.problem) == (1, 7, "")
    assert said.store.startswith("file://")
    cluster.lead()
    wait_for(lambda: cluster.status().HasField("finished"))
    assert cluster.status().finished == said.finished
    cluster.worker("worker-0")
    wait_for(lambda: not cluster.status().HasField("finished"))


def test_a_worker_that_stops_leaves_at_once_and_finishes_nothing(cluster: Cluster, rounds: Rounds) -> None:
    worker = work(cluster, rounds)
    cluster.call(cluster.stub.Leave, pb.LeaveRequest(member=worker, finished=False))
    assert cluster.epoch_with(lambda epoch: epoch.number > 2).finished == 0
