"""Two clusters on one store: each job is trained by one of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from scar.errors import JobExists, NotServing, ScarError
from scar.v1 import recovery_pb2 as pb
from scar.wire import codec
from scar_recovery import job_ownership
from scar_recovery.core import owner_watch
from scar_runtime.store import open_store
from scar_runtime.store.directory import DirectoryStore
from tests.component.recovery_cluster import SECONDS, Cluster, wait_for


@pytest.fixture
def clusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Cluster, Cluster]]:
    monkeypatch.setattr(job_ownership, "OWNER_BEAT_SECONDS", 0.05)
    monkeypatch.setattr(owner_watch, "EXPIRY", 1.0)
    store = open_store(f"file://{tmp_path}")
    assert isinstance(store, DirectoryStore)
    found = tuple(Cluster(store, f"redis://127.0.0.1:{number}/0") for number in (1, 2))
    yield found  # type: ignore[misc]
    for cluster in found:
        cluster.close()


def start(cluster: Cluster, **how: bool) -> None:
    """As clients do: again while it is not known."""
    end = time.monotonic() + SECONDS
    while True:
        try:
            cluster.call(
                cluster.stub.StartJob, pb.StartJobRequest(job=codec.job_to_proto(cluster.job), **how)
            )
            return
        except NotServing:
            assert time.monotonic() < end
            time.sleep(0.02)


def authors(cluster: Cluster) -> list[str]:
    return [epoch.author for epoch in cluster.epochs()]


def test_a_second_cluster_cannot_go_on_with_a_job_that_is_trained(clusters: tuple[Cluster, Cluster]) -> None:
    one, two = clusters
    one.start()
    before = authors(one)
    two.lead()
    with pytest.raises(JobExists, match="another cluster"):
        start(two, resume=True)
    assert authors(one) == before
    assert one.status().job == "test"
    assert one.status().epoch == len(before)


def test_an_empty_cluster_with_the_same_label_leaves_the_job_alone(clusters: tuple[Cluster, Cluster]) -> None:
    """As a release of the same name in another namespace was, on one bucket."""
    one, two = clusters
    one.start()
    before = authors(one)
    two.lead()  # has found the label's job, and waited to see whether anybody trains it
    assert two.status().job == ""
    assert authors(one) == before


def test_when_the_first_is_gone_the_second_goes_on(clusters: tuple[Cluster, Cluster]) -> None:
    one, two = clusters
    for server in one.start():
        server.server.stop(0)
    one.resign()
    two.lead()
    start(two, resume=True)
    assert two.status().job == "test"


def test_a_job_can_be_taken_away_and_the_first_steps_down(clusters: tuple[Cluster, Cluster]) -> None:
    one, two = clusters
    one.start()
    two.lead()
    start(two, resume=True, take_over=True)
    assert one.running is not None
    former = one.running
    wait_for(lambda: not former.is_alive())
    with pytest.raises(ScarError):
        start(one.lead() and one, resume=True)
