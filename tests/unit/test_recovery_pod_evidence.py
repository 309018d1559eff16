"""What Kubernetes' word is worth: which end of a container proves which death, and who has to go."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace as Made
from typing import Any

import pytest

from scar.placement import Member, Role
from scar_recovery.config import RecoverySettings
from scar_recovery.core.events import MemberArrived, ShardsExcluded
from scar_recovery.core.membership import Membership
from scar_recovery.core.pod_evidence import SKEW, NodeSeen, PodEvidence, PodFinding, PodSeen
from scar_recovery.pod_monitor import PodMonitor
from scar_recovery.pod_watch import PodWatch, node_from_kubernetes, pod_from_kubernetes

SHARD = Member(Role.SHARD, "scar-ps-0", "0" * 12, "10.0.0.7:7070")
WORKER = Member(Role.WORKER, "scar-worker-0", "1" * 12, "10.0.0.8:7070")
POD = PodSeen("scar-ps-0", "u1", "10.0.0.7", "node1")
NODE = NodeSeen("node1", ready=True)
SPOT = "aws-node-termination-handler/spot-itn"


@pytest.fixture
def evidence() -> PodEvidence:
    """It has known the shard, its pod and its node since time 100."""
    made = PodEvidence()
    made.replace_pods([POD])
    made.replace_nodes([NODE])
    assert made.find_news([SHARD, WORKER], 100.0) == []
    return made


def test_a_container_that_ended_after_the_member_had_joined_is_a_proof(evidence: PodEvidence) -> None:
    evidence.update_pod(replace(POD, ended=150.0, why="OOMKilled, exit code 137"))
    (found,) = evidence.find_news([SHARD, WORKER], 150.4)
    assert (found.member, found.proof) == (SHARD, True)
    assert found.age == pytest.approx(0.4)
    assert "OOMKilled, exit code 137" in found.evidence
    assert evidence.find_news([SHARD, WORKER], 150.5) == [], "it is said once"


def test_the_end_of_a_former_life_says_nothing_about_the_next(evidence: PodEvidence) -> None:
    reborn = replace(SHARD, incarnation="2" * 12)
    evidence.update_pod(replace(POD, ended=150.0))
    assert evidence.find_news([reborn], 150.0 + SKEW + 0.1) == []


@pytest.mark.parametrize("ended", [150.0 - SKEW + 0.1, 150.0, 150.0 + SKEW])
def test_what_the_clocks_cannot_tell_apart_is_only_a_reason_to_ask(
    evidence: PodEvidence, ended: float
) -> None:
    reborn = replace(SHARD, incarnation="2" * 12)
    evidence.find_news([reborn], 150.0)
    evidence.update_pod(replace(POD, ended=ended))
    (found,) = evidence.find_news([reborn], 152.0)
    assert not found.proof


def test_a_second_end_is_news_again(evidence: PodEvidence) -> None:
    evidence.update_pod(replace(POD, ended=150.0))
    assert len(evidence.find_news([SHARD], 150.0)) == 1
    evidence.update_pod(replace(POD, ended=170.0))
    assert len(evidence.find_news([SHARD], 170.0)) == 1


def test_a_pod_that_is_gone_proves_nothing(evidence: PodEvidence) -> None:
    """It may run on, on a node that nobody reaches."""
    evidence.remove_pod(POD)
    (found,) = evidence.find_news([SHARD], 120.0)
    assert (found.member, found.proof) == (SHARD, False)


def test_a_pod_that_was_replaced_is_gone(evidence: PodEvidence) -> None:
    evidence.update_pod(replace(POD, uid="u2", address="10.0.0.9"))
    (found,) = evidence.find_news([SHARD], 120.0)
    assert not found.proof


def test_the_old_pods_end_does_not_take_the_new_one_away(evidence: PodEvidence) -> None:
    new = replace(POD, uid="u2", address="10.0.0.9")
    evidence.update_pod(new)
    evidence.remove_pod(POD)
    reborn = replace(SHARD, incarnation="2" * 12, address="10.0.0.9:7070")
    assert evidence.find_news([reborn], 120.0) == []
    evidence.update_node(replace(NODE, ready=False))
    assert [found.evidence for found in evidence.find_news([reborn], 121.0)] == ["node node1 is not ready"], (
        "its pod is known"
    )
    evidence.update_node(NODE)
    evidence.update_pod(replace(new, ended=130.0))
    (found,) = evidence.find_news([reborn], 130.0)
    assert found.proof


def test_members_outside_of_kubernetes_are_left_alone(evidence: PodEvidence) -> None:
    stranger = Member(Role.WORKER, "notebook", "3" * 12, "192.168.0.5:1")
    assert evidence.find_news([stranger, replace(stranger, name="silent", address="")], 120.0) == []


def test_a_node_that_is_not_ready_is_a_reason_to_ask(evidence: PodEvidence) -> None:
    evidence.update_node(replace(NODE, ready=False))
    (found,) = evidence.find_news([SHARD, WORKER], 120.0)
    assert (found.member, found.proof) == (SHARD, False)
    assert evidence.find_news([SHARD, WORKER], 121.0) == []
    evidence.update_node(NODE)
    assert evidence.find_news([SHARD, WORKER], 122.0) == []
    evidence.remove_node("node1")
    assert len(evidence.find_news([SHARD, WORKER], 123.0)) == 1, "it came back and went again"


def test_who_has_to_go(evidence: PodEvidence) -> None:
    assert not evidence.must_leave(SHARD)
    evidence.update_node(replace(NODE, taints=frozenset({"node.kubernetes.io/unreachable"})))
    assert not evidence.must_leave(SHARD), "this taint is no notice"
    evidence.update_node(replace(NODE, taints=frozenset({SPOT})))
    assert evidence.must_leave(SHARD)
    assert not evidence.must_leave(replace(SHARD, address="10.0.0.99:7070")), "that one runs elsewhere"
    evidence.update_node(NODE)
    assert not evidence.must_leave(SHARD), "it was taken back"
    evidence.update_pod(replace(POD, leaving=True))
    assert evidence.must_leave(SHARD)


def test_which_taints_are_notices_is_a_setting() -> None:
    settings = RecoverySettings(name="recovery-0", notice_taints="mine, yours,")
    assert settings.notices == {"mine", "yours"}
    assert SPOT in RecoverySettings(name="recovery-0").notices


# --- what the API says
# ------------------------------------------------------------------------------------------------------


def container(**state: Any) -> Any:
    ended = Made(finished_at=datetime(2026, 1, 1, tzinfo=UTC), reason="Error", exit_code=137)
    kinds = {"running": Made(terminated=None), "terminated": Made(terminated=ended), "none": None}
    return Made(name="ps", state=kinds[state["now"]], last_state=kinds[state.get("before", "none")])


def api_pod(*containers: Any, deleted: bool = False) -> Any:
    meta = Made(name="scar-ps-0", uid="u1", labels={"app.kubernetes.io/component": "ps"})
    meta.deletion_timestamp = "now" if deleted else None
    return Made(
        metadata=meta,
        spec=Made(node_name="node1"),
        status=Made(pod_ip="10.0.0.7", container_statuses=containers),
    )


def test_pods_are_read() -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    assert pod_from_kubernetes(api_pod(container(now="running"))) == POD
    assert pod_from_kubernetes(api_pod(container(now="terminated"))).ended == moment
    restarted = pod_from_kubernetes(api_pod(container(now="running", before="terminated"), deleted=True))
    assert (restarted.ended, restarted.why, restarted.leaving) == (moment, "Error, exit code 137", True)
    pending = api_pod()
    pending.status.container_statuses, pending.status.pod_ip, pending.spec.node_name = None, None, None
    assert pod_from_kubernetes(pending) == PodSeen("scar-ps-0", "u1", "", "")


def test_nodes_are_read() -> None:
    status = Made(conditions=[Made(type="Ready", status="True")])
    node = Made(metadata=Made(name="node1"), status=status, spec=Made(taints=[Made(key=SPOT)]))
    assert node_from_kubernetes(node) == NodeSeen("node1", True, frozenset({SPOT}))
    status.conditions, node.spec.taints = [Made(type="Ready", status="Unknown")], None
    assert node_from_kubernetes(node) == NodeSeen("node1", False)


class FakeList:
    """The API's method, and what it gives; it fails as often as it is told."""

    def __init__(self, failures: int) -> None:
        self.failures = failures  # to come

    def __call__(self, **options: object) -> Any:
        assert (options["namespace"], options["label_selector"]) == ("ns", "app=scar")
        if self.failures:
            self.failures -= 1
            raise OSError("the API server is away")
        return Made(items=[api_pod(container(now="running"))], metadata=Made(resource_version="7"))


class FakeWatch:
    """One change, then the stream ends."""

    def stream(self, _method: object, **options: object) -> Any:
        assert options["resource_version"] == "7"
        yield {"type": "DELETED", "object": api_pod(container(now="running"))}


def test_the_watch_lists_follows_and_survives_an_api_server_that_is_away() -> None:
    evidence, stopping, seen = PodEvidence(), threading.Event(), list[int]()
    watch = PodWatch.__new__(PodWatch)  # not in a cluster: what it would find out there is given
    watch._api = Made(list_namespaced_pod=FakeList(failures=1))
    watch._watch, watch._namespace, watch._selector = FakeWatch, "ns", "app=scar"
    watch._evidence = evidence
    watch._lock = threading.Lock()

    def changed() -> None:
        seen.append(len(evidence._pods))
        if len(seen) == 4:
            stopping.set()

    watch._changed = changed
    watch.follow_pods(stopping)
    assert seen[:4] == [1, 0, 1, 0], "listed, deleted, listed again"


# --- what is done about it
# --------------------------------------------------------------------------------------------------


class FakeSession:
    """A leadership with a job; what it is told."""

    def __init__(self) -> None:
        self.jobs = Made(job="a job")
        self.members = self
        self.reviews = 0
        self.asked: list[PodFinding] = []

    def all_members(self) -> list[Member]:
        return [SHARD]

    def review_shards(self) -> None:
        self.reviews += 1

    def report_pod(self, finding: PodFinding) -> bool:
        self.asked.append(finding)
        return True


def test_only_news_are_acted_upon() -> None:
    monitor, session = PodMonitor(RecoverySettings(name="recovery-0"), lambda: None), FakeSession()
    monitor._evidence.replace_pods([POD])
    monitor.act_on_news(session)  # type: ignore[arg-type]
    monitor._evidence.replace_pods([replace(POD, leaving=True)])
    assert monitor.must_leave(SHARD)
    monitor.act_on_news(session)  # type: ignore[arg-type]
    monitor._evidence.remove_pod(POD)
    monitor.act_on_news(session)  # type: ignore[arg-type]
    monitor.act_on_news(session)  # type: ignore[arg-type]
    assert session.reviews == 4
    assert [finding.evidence for finding in session.asked] == ["its pod u1 is gone"]


def test_excluded_members_give_their_blocks_away_and_are_not_let_in() -> None:
    members = Membership(lease=2.0)
    members.handle(MemberArrived(SHARD), 1.0)
    members.handle(ShardsExcluded(frozenset({SHARD.key})), 2.0)
    assert members.arrivals_of(Role.SHARD) == []
    assert members.departures == {}
    members.handle(ShardsExcluded(frozenset()), 3.0)
    assert [arrival.member for arrival in members.arrivals_of(Role.SHARD)] == [SHARD]
