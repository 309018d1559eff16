"""A pod is cut off by a container that joins it: what is asked of the API server, and what becomes of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from scar.errors import ConfigError, DeadlineExceeded
from scar_kube import pod_cut
from scar_kube.pod_cut import PodCut, begin_pod_cut, pod_cut_problem
from scar_kube.pods import read_pod

IMAGE = SimpleNamespace(image="scar:1", image_pull_policy="IfNotPresent")
FORBIDDEN = (
    'pods "scar-ps-1" is forbidden: violates PodSecurity "restricted:latest": non-default capabilities'
)


class ApiServer:
    """One pod. ``allowed``: by RBAC; ``refusal``: of admission. ``code``: with which a container ends that
    joined; None: it runs.
    """

    def __init__(self) -> None:
        self.core = self
        self.allowed = True
        self.refusal = ""
        self.code: int | None = 0
        self.message = "no packets are dropped"
        self.joined: list[dict[str, Any]] = []
        self.replaced = False

    def refused_right(self, namespace: str, verb: str, resource: str) -> str:
        assert (namespace, verb, resource) == ("mine", "patch", "pods/ephemeralcontainers")
        return "" if self.allowed else "you may not"

    def ask(self, what: str, method: Any, *arguments: object, **options: object) -> Any:
        return method(*arguments, **options)

    def patch_namespaced_pod_ephemeralcontainers(
        self, pod: str, namespace: str, body: dict[str, Any], dry_run: str = ""
    ) -> Any:
        assert (pod, namespace) == ("scar-ps-1", "mine")
        if self.refusal:
            raise ConfigError(
                f"the API server refused to join: {self.refusal}", "Change what it complains about"
            )
        after = [*self.joined, *body["spec"]["ephemeralContainers"]]
        if not dry_run:
            self.joined = after
        return SimpleNamespace(spec=SimpleNamespace(ephemeral_containers=after))

    def list_namespaced_pod(self, namespace: str, field_selector: str) -> Any:
        assert (namespace, field_selector) == ("mine", "metadata.name=scar-ps-1")
        return SimpleNamespace(items=[self.pod()])

    def pod(self) -> Any:
        names = [] if self.replaced else [one["name"] for one in self.joined]
        ended = self.code is not None and SimpleNamespace(
            exit_code=self.code, message=self.message, reason="Error"
        )
        state = SimpleNamespace(terminated=ended or None, running=None if ended else SimpleNamespace())
        running = SimpleNamespace(running=SimpleNamespace(), terminated=None)
        main = SimpleNamespace(name="ps", state=running, last_state=None, restart_count=0)
        labels = {"app.kubernetes.io/component": "ps"}
        return SimpleNamespace(
            metadata=SimpleNamespace(name="scar-ps-1", labels=labels, deletion_timestamp=None),
            spec=SimpleNamespace(ephemeral_containers=[SimpleNamespace(name=name) for name in names] or None),
            status=SimpleNamespace(
                phase="Running",
                pod_ip="10.0.0.9",
                container_statuses=[main],
                ephemeral_container_statuses=[SimpleNamespace(name=name, state=state) for name in names]
                or None,
            ),
        )


@pytest.fixture
def server() -> ApiServer:
    return ApiServer()


def begin(server: ApiServer) -> PodCut:
    return begin_pod_cut(server, "mine", "scar-ps-1", IMAGE, 5.0)  # type: ignore[arg-type]


def problem(server: ApiServer) -> str:
    return pod_cut_problem(server, "mine", "scar-ps-1", IMAGE)  # type: ignore[arg-type]


def test_a_container_of_the_release_with_one_capability_joins_the_pod_for_so_long(server: ApiServer) -> None:
    begin(server).wait()
    begin(server).wait()
    first, second = server.joined
    assert first["name"] != second["name"], "Kubernetes keeps the first one"
    assert (first["image"], first["imagePullPolicy"]) == ("scar:1", "IfNotPresent")
    assert first["args"] == ["python", "-m", "scar_kube.nftables", "5"]
    context = first["securityContext"]
    assert context["capabilities"] == {"drop": ["ALL"], "add": ["NET_ADMIN"]}
    assert (context["runAsUser"], context["runAsNonRoot"]) == (0, False), "others keep no capability"
    assert not context["allowPrivilegeEscalation"]


def test_whether_it_can_be_done_is_known_before(server: ApiServer) -> None:
    assert problem(server) == ""
    server.refusal = FORBIDDEN
    assert FORBIDDEN in problem(server)
    server.allowed = False
    assert problem(server) == "you may not"
    assert server.joined == []


def test_what_admission_refuses_says_what_would_allow_it(server: ApiServer) -> None:
    server.refusal = FORBIDDEN
    with pytest.raises(ConfigError, match="violates PodSecurity") as refused:
        begin(server)
    assert "privileged" in refused.value.next_step


def test_a_pod_keeps_a_bounded_number_of_them(server: ApiServer) -> None:
    for _ in range(pod_cut.MOST):
        begin(server)
    with pytest.raises(ConfigError, match=f"cut off {pod_cut.MOST} times") as refused:
        begin(server)
    assert refused.value.next_step.endswith("kubectl delete pod scar-ps-1 -n mine")
    assert len(server.joined) == pod_cut.MOST


@pytest.mark.parametrize("code", [0, 143])
def test_it_is_over_when_its_container_has_ended(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    looks = []

    def sleep(seconds: float) -> None:
        looks.append(read_pod(server.pod()))
        server.code = code

    monkeypatch.setattr("scar_kube.pod_cut.time.sleep", sleep)
    server.code = None
    begin(server).wait()
    assert [(pod.state, pod.running, pod.process().alive) for pod in looks] == [("cut", False, True)]
    assert read_pod(server.pod()).state == "running"


def test_a_cut_that_was_none_says_why(server: ApiServer) -> None:
    server.code = 1
    with pytest.raises(ConfigError, match="scar-ps-1 was not cut off: no packets are dropped"):
        begin(server).wait()


def test_a_pod_that_is_gone_is_not_waited_for(server: ApiServer) -> None:
    server.code = None
    cut = begin(server)
    server.replaced = True
    cut.wait()


def test_one_that_does_not_start_is_not_waited_for_for_ever(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scar_kube.pod_cut.START_SECONDS", -60.0)
    server.code = None
    with pytest.raises(DeadlineExceeded, match="has not ended"):
        begin(server).wait()
