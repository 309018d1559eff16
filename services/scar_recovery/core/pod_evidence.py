"""What Kubernetes knows about members: whose container has ended, who has to go soon. Pure.

A container's end proves a death only when the member had joined before it ended, since the next incarnation
in the same pod has the same name and address. The two moments are read from different clocks, so whoever acts
on a proof still asks first whether that very incarnation answers. Everything else, a pod or a node that is
gone, is only a reason to ask: the process may live on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from scar.placement import Member

SKEW = 2.0  # seconds by which the clocks of two nodes may differ, and by which the kubelet rounds
MAX_AGE = 60.0  # seconds that a finding says at most

# Taints by which a platform says that it will take the node away.
NOTICES = frozenset(
    {
        "aws-node-termination-handler/spot-itn",
        "aws-node-termination-handler/scheduled-maintenance",
        "aws-node-termination-handler/asg-lifecycle-termination",
        "aws-node-termination-handler/rebalance-recommendation",
        "cloud.google.com/impending-node-termination",
        "remediator.kubernetes.azure.com/unschedulable",
        "karpenter.sh/disrupted",
        "ToBeDeletedByClusterAutoscaler",
        "node.kubernetes.io/out-of-service",
    }
)


@dataclass(frozen=True)
class PodSeen:
    """What Kubernetes says about a pod.

    ``ended``: seconds since 1970 at which its container ended last, by the node's clock; 0: never.
    ``why``: in words. ``leaving``: it was asked to end and has some time left.
    """

    name: str
    uid: str
    address: str
    node: str
    ended: float = 0.0
    why: str = ""
    leaving: bool = False


@dataclass(frozen=True)
class NodeSeen:
    name: str
    ready: bool
    taints: frozenset[str] = frozenset()


@dataclass(frozen=True)
class PodFinding:
    """A member that may be dead. ``proof``: it is, unless it answers.

    ``age``: seconds since it happened; 0: unknown.
    """

    member: Member
    proof: bool
    evidence: str
    age: float = 0.0


class PodEvidence:
    """``notices``: taints of nodes that are about to go. Not thread-safe."""

    def __init__(self, notices: frozenset[str] = NOTICES) -> None:
        self._notices = notices
        self._pods: dict[str, PodSeen] = {}
        self._nodes: dict[str, NodeSeen] = {}
        self._first_seen: dict[str, float] = {}  # member key -> seconds since 1970
        self._pod_by_member: dict[str, PodSeen] = {}  # member key -> its pod, as long as there is one
        self._last_evidence: dict[str, str] = {}  # member key -> what was found last

    # --- events

    def replace_pods(self, pods: Iterable[PodSeen]) -> None:
        """All pods there are."""
        self._pods = {pod.name: pod for pod in pods}

    def update_pod(self, pod: PodSeen) -> None:
        self._pods[pod.name] = pod

    def remove_pod(self, pod: PodSeen) -> None:
        known = self._pods.get(pod.name)
        if known is not None and known.uid == pod.uid:
            del self._pods[pod.name]

    def replace_nodes(self, nodes: Iterable[NodeSeen]) -> None:
        """All nodes there are."""
        self._nodes = {node.name: node for node in nodes}

    def update_node(self, node: NodeSeen) -> None:
        self._nodes[node.name] = node

    def remove_node(self, name: str) -> None:
        """It is remembered as one that is not ready."""
        if name in self._nodes:
            self._nodes[name] = NodeSeen(name, ready=False)

    # --- questions

    def find_news(self, members: Iterable[Member], now: float) -> list[PodFinding]:
        """What was not said before about these members, which are all there are.

        ``now``: seconds since 1970.
        """
        known = {member.key: member for member in members if member.address}
        self._first_seen = {key: self._first_seen.get(key, now) for key in known}
        self._pod_by_member = {key: home for key, home in self._pod_by_member.items() if key in known}
        self._last_evidence = {key: said for key, said in self._last_evidence.items() if key in known}
        findings = []
        for member in known.values():
            finding = self._examine_member(member, now)
            said = finding.evidence if finding is not None else ""
            if finding is not None and self._last_evidence.get(member.key) != said:
                findings.append(finding)
            self._last_evidence[member.key] = said
        return findings

    def must_leave(self, shard: Member) -> bool:
        """Was its pod asked to end, or is its node about to go?"""
        pod = self._pod_of(shard)
        if pod is None:
            return False
        node = self._nodes.get(pod.node)
        return pod.leaving or (node is not None and bool(node.taints & self._notices))

    def _examine_member(self, member: Member, now: float) -> PodFinding | None:
        pod = self._pod_of(member)
        if pod is None:
            former = self._pod_by_member.get(member.key)
            return PodFinding(member, False, f"its pod {former.uid} is gone") if former is not None else None
        self._pod_by_member[member.key] = pod
        first_seen = self._first_seen[member.key]
        if pod.ended > first_seen - SKEW:
            age = min(max(0.0, now - pod.ended), MAX_AGE)
            evidence = f"its container ended at {pod.ended:.0f}: {pod.why}"
            return PodFinding(member, pod.ended > first_seen + SKEW, evidence, age)
        node = self._nodes.get(pod.node)
        if node is None or node.ready:
            return None
        return PodFinding(member, False, f"node {node.name} is not ready")

    def _pod_of(self, member: Member) -> PodSeen | None:
        """The pod in which it runs, or ran: name and address fit."""
        pod = self._pods.get(member.name)
        host = member.address.rpartition(":")[0].strip("[]")
        return pod if pod is not None and pod.address == host else None
