"""What is done to the pods of a release that allows it, by a shell in the pod."""

from __future__ import annotations

import re
import time
from types import SimpleNamespace
from typing import Any

import pytest

from scar.errors import ConfigError
from scar_cli.clusters import ReleaseTarget
from scar_cli.member_faults import faults_of
from scar_kube.faults import cut_pod, freeze_pod, send_signal
from scar_kube.pods import Pod
from scar_kube.release import CHAOS, Release
from scar_kube.where import Where


class Cluster:
    """Its API. ``scripts``: that ran, by pod. ``joined``: containers that cut a pod off. ``missing``: rights
    that nobody has. ``refusal``: of admission.
    """

    context = "here"

    def __init__(self) -> None:
        self.core = self.apps = self
        self.scripts: list[tuple[str, str]] = []
        self.joined: list[dict[str, Any]] = []
        self.missing: set[str] = set()
        self.refusal = ""

    def execute(self, namespace: str, pod: str, container: str, command: list[str]) -> None:
        assert (namespace, container, command[:2]) == ("mine", "ps", ["sh", "-c"])
        self.scripts.append((pod, command[2]))

    def refused_right(self, namespace: str, verb: str, resource: str) -> str:
        return f"you may not {verb} {resource}" if resource in self.missing else ""

    def ask(self, what: str, method: Any, *arguments: object, **options: object) -> Any:
        return method(*arguments, **options)

    def read_namespaced_stateful_set(self, name: str, namespace: str) -> Any:
        assert (name, namespace) == ("scar-ps", "mine")
        shard = SimpleNamespace(image="scar:1", image_pull_policy="Always")
        pod = SimpleNamespace(spec=SimpleNamespace(containers=[shard]))
        return SimpleNamespace(spec=SimpleNamespace(template=pod))

    def patch_namespaced_pod_ephemeralcontainers(
        self, pod: str, namespace: str, body: dict[str, Any], dry_run: str = ""
    ) -> Any:
        assert (pod, namespace) == ("scar-ps-0", "mine")
        if self.refusal:
            raise ConfigError(self.refusal, "Change it")
        made = body["spec"]["ephemeralContainers"]
        self.joined += [] if dry_run else made
        return SimpleNamespace(spec=SimpleNamespace(ephemeral_containers=made))

    def list_namespaced_pod(self, *_: object, **__: object) -> Any:
        return SimpleNamespace(items=[])  # the pod is gone, and its cut over


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def release(cluster: Cluster, chaos: str = "allowed") -> Release:
    found = Release(cluster, "mine", "scar", "scar", Where(), {CHAOS: chaos})  # type: ignore[arg-type]
    pods = [Pod("scar-ps-0", "ps", "10.0.0.9", "running"), Pod("scar-ps-1", "ps", "", "Pending")]
    found._pods = (time.monotonic() + 60, pods)
    return found


def test_a_frozen_pod_is_woken_by_a_shell_of_its_own(cluster: Cluster) -> None:
    freeze_pod(release(cluster), "ps-0", 5.0)
    [(pod, script)] = cluster.scripts
    assert pod == "scar-ps-0"
    assert script.index("kill -STOP -1") < script.index("sleep 5;") < script.index("kill -CONT -1")
    assert script.endswith("&"), "nobody waits for it"


@pytest.mark.parametrize("name", ["ps-1", "ps-7"])
def test_what_does_not_run_is_not_broken(cluster: Cluster, name: str) -> None:
    with pytest.raises(ConfigError, match=r"does not run|has no pod"):
        freeze_pod(release(cluster), name, 1.0)
    with pytest.raises(ConfigError, match=r"does not run|has no pod"):
        send_signal(release(cluster), name, "KILL")
    with pytest.raises(ConfigError, match=r"does not run|has no pod"):
        cut_pod(release(cluster), name, 1.0)
    assert cluster.scripts == []


def test_the_page_of_a_release_breaks_only_what_its_chart_allows(cluster: Cluster) -> None:
    faults = faults_of(ReleaseTarget(release(cluster)))
    assert (list(faults.offered), faults.missing) == (["kill", "freeze", "cut"], ())
    assert faults.offered["freeze"]("scar-ps-0") == "scar-ps-0 frozen for 5 s"
    assert faults.offered["kill"]("scar-ps-0") == "scar-ps-0 killed"
    assert cluster.scripts[1] == ("scar-ps-0", "kill -KILL -1")
    assert cluster.joined == []
    assert faults.offered["cut"]("ps-0") == "scar-ps-0 was cut off for 5 s"
    assert [one["image"] for one in cluster.joined] == ["scar:1"]
    refused = faults_of(ReleaseTarget(release(cluster, "refused")))
    assert refused.offered == {}
    assert "--set chaos.enabled=true" in refused.missing[0]


def test_what_the_cluster_does_not_allow_is_not_offered_and_accounted_for(cluster: Cluster) -> None:
    cluster.refusal = "violates PodSecurity"
    faults = faults_of(ReleaseTarget(release(cluster)))
    assert list(faults.offered) == ["kill", "freeze"]
    assert re.fullmatch(r"No cut: violates PodSecurity. It takes .* privileged.*", faults.missing[0])
    with pytest.raises(ConfigError, match="violates PodSecurity"):
        cut_pod(release(cluster), "ps-0", 1.0)
    cluster.refusal, cluster.missing = "", {"pods/exec"}
    faults = faults_of(ReleaseTarget(release(cluster)))
    assert list(faults.offered) == ["cut"]
    assert faults.missing[0].startswith("No kill or freeze: you may not create pods/exec")
    assert cluster.joined == []
