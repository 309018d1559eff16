"""Every pod is restricted, nobody has a right that he does not need, and nothing talks to what it need not reach."""

from __future__ import annotations

import pytest

from tests.helm.chart import EVERYTHING, Object, Render, component, containers, environment, named, of_kind, pods

API_USERS = {"recovery", "chaos"}


def test_every_pod_meets_the_restricted_standard(everything: list[Object]) -> None:
    found = pods(everything)
    assert {component(pod) for pod in found.values()} == {
        *("ps", "worker", "checkpoint", "recovery", "detector", "chaos", "test", "redis", "minio")
    }
    for name, pod in found.items():
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["runAsUser"] > 0, name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec), name
        assert all(set(volume) <= {"name", "emptyDir", "configMap"} for volume in spec["volumes"]), name
        for container in containers(pod):
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False, name
            assert context["readOnlyRootFilesystem"] is True, name
            assert context["capabilities"] == {"drop": ["ALL"]}, name
            assert container["resources"]["requests"].keys() == {"cpu", "memory"}, name
            assert "memory" in container["resources"]["limits"], name


def test_only_recovery_and_chaos_hold_a_token(everything: list[Object]) -> None:
    for name, pod in pods(everything).items():
        own = component(pod) in API_USERS
        assert pod["spec"]["automountServiceAccountToken"] is own, name
        assert pod["spec"]["serviceAccountName"] == (f"scar-{component(pod)}" if own else "scar"), name
    bound = of_kind(everything, "RoleBinding", "ClusterRoleBinding")
    assert {subject["name"] for one in bound for subject in one["subjects"]} == {"scar-recovery", "scar-chaos"}


def rights(role: Object) -> dict[str, set[str]]:
    return {resource: set(rule["verbs"]) for rule in role["rules"] for resource in rule["resources"]}


def test_recovery_may_only_look(everything: list[Object]) -> None:
    look = {"get", "list", "watch"}
    assert rights(named(everything, "Role", "scar-recovery")) == {"pods": look}
    assert rights(named(everything, "ClusterRole", "here-scar-nodes")) == {"nodes": look}


def test_chaos_has_what_its_faults_need(everything: list[Object]) -> None:
    found = rights(named(everything, "Role", "scar-chaos"))
    assert set(found) == {"pods", "pods/exec", "configmaps", "statefulsets", "deployments"}
    assert found["deployments"] == {"get", "list", "watch"}
    assert not any("*" in verbs for verbs in found.values())


def test_without_chaos_and_nodes_nothing_of_them_is_left(render: Render) -> None:
    objects = render("rbac.nodes=false")
    assert of_kind(objects, "ClusterRole", "ClusterRoleBinding", "CronJob", "Job") == []
    assert {one["metadata"]["name"] for one in of_kind(objects, "ServiceAccount")} == {"scar", "scar-recovery"}


def test_workers_do_not_learn_the_keys_of_the_store(everything: list[Object]) -> None:
    for name, pod in pods(everything).items():
        knows = {"SCAR_STORE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} & set(environment(pod["spec"]["containers"][0]))
        assert len(knows) == (3 if component(pod) in ("ps", "checkpoint", "recovery", "chaos", "test") else 0), name


def policies(objects: list[Object], labels: dict[str, str]) -> list[str]:
    """Names of the policies that select a pod with these labels."""
    found = []
    for policy in of_kind(objects, "NetworkPolicy"):
        selector = policy["spec"]["podSelector"]
        wanted = all(labels.get(key) == value for key, value in selector["matchLabels"].items())
        for rule in selector.get("matchExpressions", []):
            there = labels.get(rule["key"])
            wanted = wanted and (there is None if rule["operator"] == "DoesNotExist" else there in rule["values"])
        if wanted:
            found.append(policy["metadata"]["name"].removeprefix("scar-"))
    return sorted(found)


REACH = {
    "ps": ["members", "store"],
    "worker": ["members"],
    "checkpoint": ["members", "store"],
    "recovery": ["api-server", "members", "store"],
    "detector": ["members"],
    "chaos": ["api-server", "members", "store"],
    "test": ["members", "store"],
    "minio": ["minio"],
    "redis": ["redis"],
}


@pytest.mark.parametrize("service", REACH)
def test_traffic_is_denied_but_for_what_is_needed(everything: list[Object], service: str) -> None:
    (pod,) = {str(p["metadata"]["labels"]): p for p in pods(everything).values() if component(p) == service}.values()
    labels = pod["metadata"]["labels"]
    assert policies(everything, labels) == sorted(["default-deny", "names", *REACH[service]])
    assert policies(everything, labels | {"scar.dev/partitioned": "true"}) == ["default-deny"]


def test_default_deny_denies_all(everything: list[Object]) -> None:
    spec = named(everything, "NetworkPolicy", "scar-default-deny")["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert set(spec) == {"podSelector", "policyTypes"}


def test_without_policies_chaos_can_still_partition(render: Render) -> None:
    objects = render(*EVERYTHING, "networkPolicy.enabled=false")
    (policy,) = of_kind(objects, "NetworkPolicy")
    assert policy["spec"]["podSelector"]["matchLabels"]["scar.dev/partitioned"] == "true"
    assert of_kind(render("networkPolicy.enabled=false"), "NetworkPolicy") == []


@pytest.mark.parametrize(
    ("endpoint", "port"),
    [("https://s3.example.com", 443), ("http://10.0.0.7", 80), ("http://minio.store.svc:9000", 9000), ("", 443)],
)
def test_a_store_outside_can_be_reached_on_its_port(render: Render, endpoint: str, port: int) -> None:
    objects = render("bundled.minio.enabled=false", f"store.endpoint={endpoint}", "store.accessKey=a", "store.secretKey=b")
    (rule,) = named(objects, "NetworkPolicy", "scar-store")["spec"]["egress"]
    assert rule == {"ports": [{"port": port}]}


def test_keys_come_from_a_secret_of_the_users(render: Render) -> None:
    outside = ("bundled.minio.enabled=false", "bundled.redis.enabled=false")
    objects = render(*outside, "store.existingSecret=mine", "redis.existingSecret=ours")
    assert of_kind(objects, "Secret") == []
    variables = environment(pods(objects)["StatefulSet/scar-ps"]["spec"]["containers"][0])
    assert variables["AWS_SECRET_ACCESS_KEY"]["secretKeyRef"] == {"name": "mine", "key": "AWS_SECRET_ACCESS_KEY"}
    assert variables["SCAR_REDIS"]["secretKeyRef"] == {"name": "ours", "key": "SCAR_REDIS"}


def test_a_cloud_identity_needs_no_keys(render: Render) -> None:
    objects = render(
        "bundled.minio.enabled=false", "serviceAccount.annotations.eks\\.amazonaws\\.com/role-arn=arn:aws:iam::1:role/scar"
    )
    variables = environment(pods(objects)["StatefulSet/scar-ps"]["spec"]["containers"][0])
    assert not any(name.startswith("AWS_") for name in variables)
    assert variables["SCAR_STORE"] == "s3://scar?region=us-east-1"
    assert all("eks.amazonaws.com/role-arn" in one["metadata"]["annotations"] for one in of_kind(objects, "ServiceAccount"))
