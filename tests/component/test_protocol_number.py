"""Who speaks another protocol gets no part in the job; see "Upgrading" in docs/operations.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from scar.errors import ProtocolMismatch
from scar.placement import Member, Role
from scar.v1 import recovery_pb2 as pb
from scar.version import OLDEST_PROTOCOL, PROTOCOL
from scar.wire import codec
from scar_recovery import membership_api
from scar_runtime.store.directory import DirectoryStore
from tests.component.recovery_cluster import SECRET, Cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    found = Cluster(DirectoryStore(str(tmp_path), tmp_path))
    yield found
    found.close()


def ask(cluster: Cluster, protocol: int) -> None:
    member = codec.member_to_proto(Member(Role.SHARD, "ps-7", "7" * 12, "127.0.0.1:7"))
    request = pb.JoinRequest(member=member, secret=SECRET, protocol=protocol)
    cluster.link.call(cluster.stub.Join, request, 10)


@pytest.mark.parametrize(
    ("protocol", "what_to_do"),
    [
        (OLDEST_PROTOCOL - 1, "Upgrade ps-7 to the version of the coordinators"),
        (PROTOCOL + 1, "Upgrade the recovery coordinator; the member asks again until then"),
    ],
)
def test_another_protocol_is_refused_and_training_goes_on(
    cluster: Cluster, protocol: int, what_to_do: str
) -> None:
    cluster.start()
    before = [epoch.number for epoch in cluster.epochs()]
    with pytest.raises(ProtocolMismatch, match=f"ps-7.* speaks protocol {protocol}.*{what_to_do}"):
        ask(cluster, protocol)
    assert [epoch.number for epoch in cluster.epochs()] == before
    assert cluster.failures() == []


def test_the_version_before_is_served_where_that_is_declared(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.start()
    monkeypatch.setattr(membership_api, "PROTOCOL", PROTOCOL + 1)
    ask(cluster, PROTOCOL)
    cluster.epoch_with(lambda epoch: any(member.name == "ps-7" for member in epoch.shards))


@pytest.mark.parametrize("protocol", [OLDEST_PROTOCOL - 1, PROTOCOL, PROTOCOL + 1])
def test_who_is_refused_does_not_come_in_by_its_heartbeats(cluster: Cluster, protocol: int) -> None:
    """They come from everybody who runs, and a new leader asks there who was about to join."""
    cluster.start()
    waiting = Member(Role.SHARD, "ps-9", "9" * 12, "127.0.0.1:9")
    cluster.heartbeats.beating = [waiting]
    cluster.take_lead()
    session = cluster.session
    assert session is not None
    session.members._shards.candidate_protocol = lambda _member: protocol  # type: ignore[method-assign]
    cluster.open(session)
    taken_in = waiting.key in {member.key for member in session.members.all_members()}
    assert taken_in is (protocol == PROTOCOL)


def test_every_member_of_this_version_says_its_number() -> None:
    member = Member(Role.WORKER, "worker-0", "1" * 12)
    assert codec.join_request(member, SECRET).protocol == PROTOCOL
