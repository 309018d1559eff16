"""A client that heard no answer asks again, and another coordinator leads by then."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from scar.errors import InvalidRequest, JobExists
from scar.v1 import recovery_pb2 as pb
from scar.wire import codec
from scar_runtime.store import open_store
from scar_runtime.store.directory import DirectoryStore
from tests.component.recovery_cluster import Cluster, wait_for


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    store = open_store(f"file://{tmp_path}")
    assert isinstance(store, DirectoryStore)
    found = Cluster(store)
    yield found
    found.close()


def request(cluster: Cluster, request_id: str, **how: bool) -> pb.StartJobRequest:
    return pb.StartJobRequest(job=codec.job_to_proto(cluster.job), request_id=request_id, **how)


def start(cluster: Cluster, asked: pb.StartJobRequest) -> pb.StartJobReply:
    reply = cluster.call(cluster.stub.StartJob, asked)
    assert isinstance(reply, pb.StartJobReply)
    return reply


def test_who_started_the_job_is_answered_by_every_leader(cluster: Cluster) -> None:
    asked = request(cluster, "mine")
    cluster.lead()
    assert start(cluster, asked) == pb.StartJobReply()
    cluster.lead()
    servers = [cluster.shard(f"ps-{number}") for number in range(3)]
    for server in servers:
        cluster.join(server.member)
    wait_for(lambda: all(server.number == 1 for server in servers))
    assert start(cluster, asked) == pb.StartJobReply(epoch=1)
    cluster.lead()
    number = cluster.epoch_with(lambda epoch: epoch.number > 1).number
    assert start(cluster, asked).epoch >= number
    for other in ("", "another"):
        with pytest.raises(JobExists, match="exists already"):
            start(cluster, request(cluster, other))
    cluster.worker("worker-0")
    cluster.epoch_with(lambda epoch: bool(epoch.workers))
    start(cluster, asked)
    newest = cluster.epochs()[-1]
    assert newest.workers
    assert not newest.awaits_workers, "it begins no run anew"


def test_a_resumption_with_other_settings_is_told_again_what_it_has_changed(cluster: Cluster) -> None:
    cluster.lead()
    start(cluster, request(cluster, "first"))
    cluster.job = replace(cluster.job, workers=2)
    asked = request(cluster, "mine", resume=True)
    assert start(cluster, asked).changes == "workers: 1 -> 2"
    cluster.lead()
    assert start(cluster, asked).changes == "workers: 1 -> 2"
    assert start(cluster, request(cluster, "another", resume=True)).changes == ""
    cluster.job = replace(cluster.job, workers=3)
    with pytest.raises(InvalidRequest, match="of another request"):
        start(cluster, request(cluster, "mine", resume=True))


def test_an_id_of_another_job_is_refused(cluster: Cluster) -> None:
    cluster.lead()
    start(cluster, request(cluster, "mine"))
    cluster.job = replace(cluster.job, name="other")
    with pytest.raises(InvalidRequest, match="started job 'test'"):
        start(cluster, request(cluster, "mine"))
    with pytest.raises(InvalidRequest, match="not valid"):
        start(cluster, request(cluster, "no id"))
