"""What is done to the pods of a release that allows it: by a shell in the pod, and by a label."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace as Made
from typing import Any

import pytest

from scar.errors import ConfigError, Unreachable
from scar_cli.clusters import ReleaseTarget
from scar_cli.member_faults import faults_of
from scar_kube.faults import cut_off, freeze_pod, send_signal
from scar_kube.pods import PARTITIONED, Pod
from scar_kube.release import CHAOS, Release
from scar_kube.where import Where

SECONDS = 0.05


class Cluster:
    """Its API. ``scripts``: that ran, by pod; ``labels``: of each change, by pod."""

    context = "here"

    def __init__(self) -> None:
        self.scripts: list[tuple[str, str]] = []
        self.labels: list[tuple[str, str | None]] = []
        self.healed = threading.Event()
        self.error: Exception | None = None
        self.core = Made(patch_namespaced_pod=self.patch)

    def execute(self, namespace: str, pod: str, container: str, command: list[str]) -> None:
        assert (namespace, container, command[:2]) == ("mine", "ps", ["sh", "-c"])
        self.scripts.append((pod, command[2]))

    def ask(self, _what: str, method: Any, *arguments: object) -> object:
        return method(*arguments)

    def patch(self, pod: str, namespace: str, body: dict[str, Any]) -> None:
        assert namespace == "mine"
        value = body["metadata"]["labels"][PARTITIONED]
        self.labels.append((pod, value))
        if value is None:
            self.healed.set()
        if self.error is not None:
            raise self.error


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


def test_a_cut_ends_by_itself_and_also_when_the_pod_is_gone(cluster: Cluster) -> None:
    cut_off(release(cluster), "scar-ps-0", SECONDS)
    assert cluster.healed.wait(60)
    assert cluster.labels == [("scar-ps-0", "true"), ("scar-ps-0", None)]


def test_a_cut_that_is_refused_says_so(cluster: Cluster) -> None:
    cluster.error = Unreachable("the API server does not answer")
    with pytest.raises(Unreachable):
        cut_off(release(cluster), "ps-0", SECONDS)
    assert not cluster.healed.wait(4 * SECONDS), "nothing was cut"


@pytest.mark.parametrize("name", ["ps-1", "ps-7"])
def test_what_does_not_run_is_not_broken(cluster: Cluster, name: str) -> None:
    for act in (
        lambda: freeze_pod(release(cluster), name, 1.0),
        lambda: cut_off(release(cluster), name, 1.0),
    ):
        with pytest.raises(ConfigError, match=r"does not run|has no pod"):
            act()
    with pytest.raises(ConfigError):
        send_signal(release(cluster), name, "KILL")
    assert cluster.scripts == cluster.labels == []


def test_the_page_of_a_release_breaks_only_what_its_chart_allows(cluster: Cluster) -> None:
    faults = faults_of(ReleaseTarget(release(cluster)))
    assert list(faults) == ["kill", "freeze", "cut"]
    assert faults["freeze"]("scar-ps-0") == "scar-ps-0 frozen for 5 s"
    assert faults["kill"]("scar-ps-0") == "scar-ps-0 killed"
    assert cluster.scripts[1] == ("scar-ps-0", "kill -KILL -1")
    assert faults_of(ReleaseTarget(release(cluster, "refused"))) == {}
