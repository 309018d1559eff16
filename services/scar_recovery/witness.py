"""What Kubernetes knows about members: whose container has ended, who has to go soon. Pure: pods, nodes, members and times in.

A container's end proves a death only when the member had joined before it ended, since the next incarnation in the same pod has
the same name and address. The two moments are read from different clocks, so whoever acts on a proof still asks first whether
that very incarnation answers. Everything else, a pod or a node that is gone, is only a reason to ask: the process may live on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from scar.placement import Member

SKEW = 2.0  # seconds by which the clocks of two nodes may differ, and by which the kubelet rounds

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
    """``ended``: seconds since 1970 at which its container ended last, by the node's clock; 0: never. ``why``: in words.

    ``leaving``: it was asked to end and has some time left.
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
class Finding:
    """A member that may be dead. ``proof``: it is, unless it answers. ``age``: seconds since it happened; 0: unknown."""

    member: Member
    proof: bool
    evidence: str
    age: float = 0.0


class Witness:
    """``notices``: taints of nodes that are about to go. Not thread-safe."""

    def __init__(self, notices: frozenset[str] = NOTICES) -> None:
        self._notices = notices
        self._pods: dict[str, PodSeen] = {}
        self._nodes: dict[str, NodeSeen] = {}
        self._met: dict[str, float] = {}  # member key -> when it was first seen here, seconds since 1970
        self._homes: dict[str, PodSeen] = {}  # member key -> its pod, as long as there is one
        self._said: dict[str, str] = {}  # member key -> what was found last

    # --- events ---------------------------------------------------------------------------------------------------------

    def pods(self, pods: Iterable[PodSeen]) -> None:
        """All pods there are."""
        self._pods = {pod.name: pod for pod in pods}

    def pod(self, pod: PodSeen) -> None:
        self._pods[pod.name] = pod

    def pod_gone(self, pod: PodSeen) -> None:
        known = self._pods.get(pod.name)
        if known is not None and known.uid == pod.uid:
            del self._pods[pod.name]

    def nodes(self, nodes: Iterable[NodeSeen]) -> None:
        """All nodes there are."""
        self._nodes = {node.name: node for node in nodes}

    def node(self, node: NodeSeen) -> None:
        self._nodes[node.name] = node

    def node_gone(self, name: str) -> None:
        """It is remembered as one that is not ready."""
        if name in self._nodes:
            self._nodes[name] = NodeSeen(name, ready=False)

    # --- questions ------------------------------------------------------------------------------------------------------

    def look(self, members: Iterable[Member], now: float) -> list[Finding]:
        """What was not said before about these members, which are all there are. ``now``: seconds since 1970."""
        known = {member.key: member for member in members if member.address}
        self._met = {key: self._met.get(key, now) for key in known}
        self._homes = {key: home for key, home in self._homes.items() if key in known}
        self._said = {key: said for key, said in self._said.items() if key in known}
        findings = []
        for member in known.values():
            finding = self._judge(member, now)
            said = finding.evidence if finding is not None else ""
            if finding is not None and self._said.get(member.key) != said:
                findings.append(finding)
            self._said[member.key] = said
        return findings

    def goes(self, shard: Member) -> bool:
        """Was its pod asked to end, or is its node about to go?"""
        pod = self._home(shard)
        if pod is None:
            return False
        node = self._nodes.get(pod.node)
        return pod.leaving or (node is not None and bool(node.taints & self._notices))

    def _judge(self, member: Member, now: float) -> Finding | None:
        home = self._home(member)
        if home is None:
            former = self._homes.get(member.key)
            return Finding(member, False, f"its pod {former.uid} is gone") if former is not None else None
        self._homes[member.key] = home
        met = self._met[member.key]
        if home.ended > met - SKEW:
            age = min(max(0.0, now - home.ended), 60.0)
            return Finding(member, home.ended > met + SKEW, f"its container ended at {home.ended:.0f}: {home.why}", age)
        node = self._nodes.get(home.node)
        return Finding(member, False, f"node {node.name} is not ready") if node is not None and not node.ready else None

    def _home(self, member: Member) -> PodSeen | None:
        """The pod in which it runs, or ran: name and address fit."""
        pod = self._pods.get(member.name)
        return pod if pod is not None and pod.address == member.address.rpartition(":")[0].strip("[]") else None
