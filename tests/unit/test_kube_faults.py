"""What is done to the pods of a release that allows it, by a shell in the pod."""

from __future__ import annotations

import time

import pytest

from scar.errors import ConfigError
from scar_cli.clusters import ReleaseTarget
from scar_cli.member_faults import faults_of
from scar_kube.faults import freeze_pod, send_signal
from scar_kube.pods import Pod
from scar_kube.release import CHAOS, Release
from scar_kube.where import Where


class Cluster:
    """Its API. ``scripts``: that ran, by pod."""

    context = "here"

    def __init__(self) -> None:
        self.scripts: list[tuple[str, str]] = []

    def execute(self, namespace: str, pod: str, container: str, command: list[str]) -> None:
        assert (namespace, container, command[:2]) == ("mine", "ps", ["sh", "-c"])
        self.scripts.append((pod, command[2]))


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
    assert cluster.scripts == []


def test_the_page_of_a_release_breaks_only_what_its_chart_allows(cluster: Cluster) -> None:
    faults = faults_of(ReleaseTarget(release(cluster)))
    assert list(faults) == ["kill", "freeze"]
    assert faults["freeze"]("scar-ps-0") == "scar-ps-0 frozen for 5 s"
    assert faults["kill"]("scar-ps-0") == "scar-ps-0 killed"
    assert cluster.scripts[1] == ("scar-ps-0", "kill -KILL -1")
    assert faults_of(ReleaseTarget(release(cluster, "refused"))) == {}
