"""What a new leader makes of workers that nobody can call."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from scar.errors import ScarError
from scar.placement import Member
from scar.v1 import recovery_pb2 as pb
from scar.wire import codec
from scar_recovery.unaddressed_members import ANSWER_SECONDS
from scar_runtime.store.directory import DirectoryStore
from tests.component.recovery_cluster import LEASE, Cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    found = Cluster(DirectoryStore(str(tmp_path), tmp_path))
    yield found
    found.close()


def hire(cluster: Cluster, named_calls: bool = False) -> Member:
    """A worker that is part of an epoch. ``named_calls``: of a version that says who calls."""
    cluster.start()
    worker = codec.member_from_proto(cluster.worker("worker-0", named_calls))
    cluster.epoch_with(lambda epoch: bool(epoch.workers))
    assert not worker.address
    return worker


def outlast(cluster: Cluster) -> None:
    """A suspect would have been declared dead."""
    time.sleep(2 * (LEASE + ANSWER_SECONDS))
    assert cluster.epochs()[-1].workers
    assert cluster.failures() == []


def test_a_new_leader_suspects_nobody_who_was_never_watched(cluster: Cluster) -> None:
    worker = hire(cluster)
    cluster.heartbeats.beating = [replace(worker, name="worker-1")]
    cluster.lead()
    outlast(cluster)


def test_who_sent_heartbeats_once_and_is_silent_is_dead(cluster: Cluster) -> None:
    worker = hire(cluster)
    cluster.heartbeats.beating = [worker]
    cluster.lead()
    cluster.epoch_with(lambda epoch: not epoch.workers and epoch.number > 1)
    [failure] = cluster.failures()
    assert list(failure.members) == [worker.key]


def test_whose_call_waits_lives_though_its_heartbeats_do_not_arrive(cluster: Cluster) -> None:
    worker = hire(cluster)
    cluster.heartbeats.beating = [worker]
    cluster.lead()
    asked = pb.GetEpochsRequest(after=100, wait=30, worker=codec.member_to_proto(worker))

    def ask() -> None:
        with suppress(ScarError):  # the test ends before its call does
            cluster.call(cluster.stub.GetEpochs, asked)

    call = threading.Thread(target=ask, daemon=True)
    call.start()
    outlast(cluster)
    cluster.close()
    call.join(5)


@pytest.mark.parametrize("replaced", [False, True], ids=["same leader", "new leader"])
def test_who_does_not_call_again_is_dead(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, replaced: bool
) -> None:
    monkeypatch.setattr("scar_recovery.unaddressed_members.MISSING_SECONDS", 0.3)
    worker = hire(cluster, named_calls=True)
    cluster.heartbeats.beating = [replace(worker, name="worker-1")]
    asked = pb.GetEpochsRequest(after=100, wait=0.1, worker=codec.member_to_proto(worker))
    for _ in range(8):
        cluster.call(cluster.stub.GetEpochs, asked)
    assert cluster.epochs()[-1].workers
    if replaced:
        cluster.lead()
    cluster.epoch_with(lambda epoch: not epoch.workers and epoch.number > 1)
    [failure] = cluster.failures()
    assert list(failure.members) == [worker.key]
