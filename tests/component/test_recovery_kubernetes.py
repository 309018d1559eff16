"""What the recovery coordinator does on Kubernetes' word: deaths that are checked first, and shards that
have to go.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from scar.placement import BlockSource
from scar.v1 import checkpoint_pb2
from scar.v1.checkpoint_pb2 import RoundReport
from scar.wire import codec
from scar_recovery.core.pod_evidence import PodFinding
from scar_runtime.store.directory import DirectoryStore
from tests.component.recovery_cluster import Cluster, ShardServer, wait_for


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(DirectoryStore(f"file://{tmp_path}", tmp_path))
    yield made
    made.close()


def finding(server: ShardServer, proof: bool) -> PodFinding:
    return PodFinding(codec.member_from_proto(server.member), proof, "its container ended", 0.2)


def test_whoever_answers_is_not_dead_whatever_kubernetes_says(cluster: Cluster) -> None:
    servers = cluster.start()
    assert cluster.session is not None
    assert not cluster.session.members.report_pod(finding(servers[0], proof=True))
    assert not cluster.failures()


def test_a_death_that_is_true_is_repaired_at_once(cluster: Cluster) -> None:
    servers = cluster.start()
    assert cluster.session is not None
    servers[0].server.stop(0)
    assert cluster.session.members.report_pod(finding(servers[0], proof=False)), (
        "nobody listens there any more: that is a proof"
    )
    epoch = cluster.epoch_with(lambda epoch: len(epoch.shards) == 2)
    wait_for(lambda: bool(cluster.failures()))  # the ledger is told beside the members
    (record,) = cluster.failures()
    assert epoch.cause == "failure"
    assert list(record.evidence) == ["Kubernetes: its container ended"]
    assert record.detect_seconds == pytest.approx(0.2)


def test_a_shard_on_a_doomed_node_drains_and_comes_back_when_it_is_taken_back(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.start()
    assert cluster.session is not None
    doomed = {"ps-0"}
    monkeypatch.setattr(cluster.session._state, "_must_leave", lambda member: member.name in doomed)
    cluster.session.members.review_shards()
    epoch = cluster.epoch_with(lambda epoch: len(epoch.shards) == 2)
    assert {group.source for group in epoch.moved} == {BlockSource.DONOR}, "no value changed"
    assert not cluster.failures()
    reborn = cluster.shard("ps-0")
    reborn_key = codec.member_from_proto(reborn.member).key
    cluster.join(reborn.member)
    cluster.worker("worker-0")
    epoch = cluster.epoch_with(lambda epoch: len(epoch.workers) == 1)
    assert len(epoch.shards) == 2, "it waits: its node is about to go, too"
    doomed.clear()
    cluster.session.members.review_shards()
    epoch = cluster.balanced(3)
    assert reborn_key in {member.key for member in epoch.shards}


def test_moves_wait_until_the_shard_is_saved(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    servers = cluster.start()
    session = cluster.session
    assert session is not None
    begun: list[tuple[str, float]] = []
    all_safe = Event()

    def trigger(request: checkpoint_pb2.TriggerRequest, seconds: float) -> tuple[str, RoundReport]:
        begun.append((request.shard, seconds))
        all_safe.wait(60.0)
        return "nothing has changed", RoundReport(unchanged=True)

    monkeypatch.setattr(session._saves, "trigger_round", trigger)
    key = codec.member_from_proto(servers[0].member).key
    monkeypatch.setattr(session._state, "_must_leave", lambda member: member.key == key)
    session.members.review_shards()
    wait_for(lambda: bool(begun))
    ((flushed, seconds),) = begun
    assert flushed == key
    assert seconds == pytest.approx(session._state.settings.flush, abs=0.5)
    assert session._state._planner._moves._saving == {key}
    before = session.epoch_number
    assert session.epochs_after(before, 0.5) == [], "no block moves before"
    all_safe.set()
    cluster.epoch_with(lambda epoch: len(epoch.shards) == 2)
