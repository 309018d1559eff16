"""Every pod is restricted, nobody has a right that he does not need, and nothing talks to what it need not
reach.
"""

from __future__ import annotations

import re

import pytest

from tests.helm.chart import (
    CHART,
    EVERYTHING,
    ROOT,
    Object,
    Render,
    component,
    containers,
    environment,
    named,
    of_kind,
    pods,
)

API_USERS = {"recovery", "chaos"}


def test_every_pod_meets_the_restricted_standard(everything: list[Object]) -> None:
    found = pods(everything)
    assert {component(pod) for pod in found.values()} == {
        *("ps", "worker", "checkpoint", "recovery", "detector", "chaos", "console", "test", "redis", "minio")
    }
    for name, pod in found.items():
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["runAsUser"] > 0, name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec), name
        kinds = {"name", "emptyDir", "configMap", *([] if component(pod) == "minio" else ["secret"])}
        assert all(set(volume) <= kinds for volume in spec["volumes"]), name
        assert all(volume.get("emptyDir", {"sizeLimit"}) for volume in spec["volumes"]), (
            "nothing is unlimited"
        )
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
        account = named(everything, "ServiceAccount", pod["spec"]["serviceAccountName"])
        assert account["metadata"]["name"] == f"scar-{component(pod)}", name
        assert account["automountServiceAccountToken"] is False, name
    bound = of_kind(everything, "RoleBinding", "ClusterRoleBinding")
    assert {subject["name"] for one in bound for subject in one["subjects"]} == {
        "scar-recovery",
        "scar-chaos",
    }


def rights(role: Object) -> dict[str, set[str]]:
    return {resource: set(rule["verbs"]) for rule in role["rules"] for resource in rule["resources"]}


def test_recovery_may_only_look(everything: list[Object]) -> None:
    look = {"get", "list", "watch"}
    assert rights(named(everything, "Role", "scar-recovery")) == {"pods": look}
    assert rights(named(everything, "ClusterRole", "here-scar-nodes")) == {"nodes": look}


# how the Kubernetes client's methods begin, and what they need
VERBS = {"list": "list", "read": "get", "create": "create", "replace": "update", "patch": "patch"}
VERBS |= {"delete": "delete", "connect_get": "get"}
KINDS = {"pod": "pods", "pod_exec": "pods/exec", "config_map": "configmaps"}
KINDS |= {"pod_ephemeralcontainers": "pods/ephemeralcontainers"}
KINDS |= {"stateful_set": "statefulsets", "deployment": "deployments"}


def test_chaos_may_do_what_its_sources_call_and_nothing_else(everything: list[Object]) -> None:
    asked = set()
    for file in ("scar_chaos/targets/kubernetes", "scar_chaos/targets/pod_api", "scar_kube/pod_cut"):
        text = (ROOT / "services" / f"{file}.py").read_text()
        asked |= set(re.findall(r"\b([a-z_]+)_namespaced_([a-z_]+)\b", text))
    needed = {(KINDS[noun], VERBS[verb]) for verb, noun in asked}
    rules = named(everything, "Role", "scar-chaos")["rules"]
    granted = {(kind, verb) for rule in rules for kind in rule["resources"] for verb in rule["verbs"]}
    assert granted - needed == {("pods/exec", "create")}, "newer API servers want that for an exec by GET"
    assert needed <= granted
    by_name = {tuple(rule["verbs"]): rule["resourceNames"] for rule in rules if "resourceNames" in rule}
    assert by_name == {("get",): ["scar-ps"], ("delete",): ["scar-worker"]}


def test_without_chaos_and_nodes_nothing_of_them_is_left(render: Render) -> None:
    objects = render("rbac.nodes=false")
    assert of_kind(objects, "ClusterRole", "ClusterRoleBinding", "CronJob", "Job") == []
    assert {one["metadata"]["name"] for one in of_kind(objects, "ServiceAccount")} == {
        f"scar-{name}"
        for name in ("ps", "worker", "checkpoint", "recovery", "detector", "test", "minio", "redis")
    }


def test_workers_do_not_learn_the_keys_of_the_store(everything: list[Object]) -> None:
    for name, pod in pods(everything).items():
        knows = {"SCAR_STORE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} & set(
            environment(pod["spec"]["containers"][0])
        )
        assert len(knows) == (
            3 if component(pod) in ("ps", "checkpoint", "recovery", "chaos", "test") else 0
        ), name


def secrets_of(container: Object) -> set[tuple[str, str]]:
    """(Secret, key) of each variable that comes from one."""
    found = environment(container).values()
    references = [one["secretKeyRef"] for one in found if isinstance(one, dict) and "secretKeyRef" in one]
    return {(one["name"], one["key"]) for one in references}


def test_nobody_but_the_bundled_minio_has_its_root_keys(everything: list[Object], render: Render) -> None:
    """The services have a user of their own, made beside MinIO before anybody is sent there."""
    root = {("scar-minio", "MINIO_ROOT_USER"), ("scar-minio", "MINIO_ROOT_PASSWORD")}
    keys = {("scar-store", "AWS_ACCESS_KEY_ID"), ("scar-store", "AWS_SECRET_ACCESS_KEY")}
    for name, pod in pods(everything).items():
        for container in containers(pod):
            held = secrets_of(container)
            if container["name"] == "user":
                assert held == root | keys
                assert "readinessProbe" in container
            elif container["name"] == "minio":
                assert held == root, name
            else:
                assert not held & root, name
    stored = {one["metadata"]["name"]: one.get("stringData", {}) for one in of_kind(everything, "Secret")}
    assert stored["scar-minio"]["MINIO_ROOT_USER"] != stored["scar-store"]["AWS_ACCESS_KEY_ID"]
    assert stored["scar-minio"]["MINIO_ROOT_PASSWORD"] != stored["scar-store"]["AWS_SECRET_ACCESS_KEY"]
    outside = render("bundled.minio.enabled=false", "store.accessKey=a", "store.secretKey=b")
    assert "scar-minio" not in {one["metadata"]["name"] for one in of_kind(outside, "Secret")}


def policies(objects: list[Object], labels: dict[str, str]) -> list[str]:
    """Names of the policies that select a pod with these labels."""
    found = []
    for policy in of_kind(objects, "NetworkPolicy"):
        selector = policy["spec"]["podSelector"]
        wanted = all(labels.get(key) == value for key, value in selector["matchLabels"].items())
        for rule in selector.get("matchExpressions", []):
            there = labels.get(rule["key"])
            wanted = wanted and (
                there is None if rule["operator"] == "DoesNotExist" else there in rule["values"]
            )
        if wanted:
            found.append(policy["metadata"]["name"].removeprefix("scar-"))
    return sorted(found)


REACH = {
    "ps": ["members", "redis-users", "store"],
    "worker": ["members"],
    "checkpoint": ["members", "redis-users", "store"],
    "recovery": ["api-server", "members", "redis-users", "store"],
    "detector": ["members", "redis-users"],
    "chaos": ["api-server", "members", "store"],
    "console": ["console"],
    "test": ["members", "redis-users", "store"],
    "minio": ["minio"],
    "redis": ["redis"],
}


@pytest.mark.parametrize("service", REACH)
def test_traffic_is_denied_but_for_what_is_needed(everything: list[Object], service: str) -> None:
    (pod,) = {
        str(p["metadata"]["labels"]): p for p in pods(everything).values() if component(p) == service
    }.values()
    labels = pod["metadata"]["labels"]
    assert policies(everything, labels) == sorted(["default-deny", "names", *REACH[service]])
    assert policies(everything, labels | {"scar.dev/partitioned": "true"}) == ["default-deny"]


@pytest.mark.parametrize(
    ("server", "users"),
    [
        ("redis", {"ps", "checkpoint", "recovery", "detector", "test"}),
        ("minio", {"ps", "checkpoint", "recovery", "chaos", "test"}),
    ],
)
def test_who_may_reach_the_bundled_servers_from_both_ends(
    everything: list[Object], server: str, users: set[str]
) -> None:
    """Workers are not among them: they run a user's code."""
    (rule,) = named(everything, "NetworkPolicy", f"scar-{server}")["spec"]["ingress"]
    (peer,) = rule["from"]
    (among,) = peer["podSelector"]["matchExpressions"]
    assert (among["key"], set(among["values"])) == ("app.kubernetes.io/component", users)
    assert peer["podSelector"]["matchLabels"]["app.kubernetes.io/instance"] == "scar"


def test_only_who_uses_redis_is_told_where_it_is(everything: list[Object]) -> None:
    knows = {
        component(pod): any("REDIS" in name for name in environment(pod["spec"]["containers"][0]))
        for pod in pods(everything).values()
    }
    assert {name for name, told in knows.items() if told} == {
        "ps",
        "checkpoint",
        "recovery",
        "detector",
        "test",
    }
    assert {name for name, told in knows.items() if not told} == {
        *("worker", "chaos", "console", "redis", "minio")
    }


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
    [
        ("https://s3.example.com", 443),
        ("http://10.0.0.7", 80),
        ("http://minio.store.svc:9000", 9000),
        ("", 443),
    ],
)
def test_a_store_outside_can_be_reached_on_its_port(render: Render, endpoint: str, port: int) -> None:
    objects = render(
        "bundled.minio.enabled=false", f"store.endpoint={endpoint}", "store.accessKey=a", "store.secretKey=b"
    )
    (rule,) = named(objects, "NetworkPolicy", "scar-store")["spec"]["egress"]
    assert rule == {"ports": [{"port": port}]}


def test_keys_come_from_a_secret_of_the_users(render: Render) -> None:
    outside = ("bundled.minio.enabled=false", "bundled.redis.enabled=false")
    objects = render(
        *outside,
        "store.existingSecret=mine",
        "redis.existingSecret=ours",
        "store.keySecret=k",
        "tls.mode=off",
    )
    assert of_kind(objects, "Secret") == []
    variables = environment(pods(objects)["StatefulSet/scar-ps"]["spec"]["containers"][0])
    assert variables["AWS_SECRET_ACCESS_KEY"]["secretKeyRef"] == {
        "name": "mine",
        "key": "AWS_SECRET_ACCESS_KEY",
    }
    assert variables["SCAR_REDIS"]["secretKeyRef"] == {"name": "ours", "key": "SCAR_REDIS"}


ROLE = "eks\\.amazonaws\\.com/role-arn"


def cloud_roles(objects: list[Object]) -> dict[str, str]:
    """Component -> the role of its account."""
    return {
        one["metadata"]["name"].removeprefix("scar-"): one["metadata"]["annotations"][ROLE.replace("\\", "")]
        for one in of_kind(objects, "ServiceAccount")
        if "annotations" in one["metadata"]
    }


@pytest.mark.parametrize(("given", "secret"), [((), "scar-store-key"), (("store.keySecret=mine",), "mine")])
def test_who_believes_the_store_has_the_key_that_signs_it(
    render: Render, given: tuple[str, ...], secret: str
) -> None:
    objects = render("chaos.enabled=true", *given)
    for name, pod in pods(objects).items():
        variables = environment(pod["spec"]["containers"][0])
        mounted = [one["secret"] for one in pod["spec"]["volumes"] if one["name"] == "store-key"]
        if component(pod) in ("ps", "checkpoint", "recovery"):
            assert variables["SCAR_STORE_KEY"] == "/etc/scar/store-key/key", name
            assert [(one["secretName"], one["defaultMode"]) for one in mounted] == [(secret, 0o440)], name
        else:
            assert ("SCAR_STORE_KEY" in variables, mounted) == (False, []), name
    made = [one for one in of_kind(objects, "Secret") if one["metadata"]["name"] == "scar-store-key"]
    assert len(made) == (not given)
    for one in made:
        assert len(one["stringData"]["key"]) == 32
        assert one["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep", "the bucket stays, too"


def test_a_cloud_identity_needs_no_keys(render: Render) -> None:
    objects = render("bundled.minio.enabled=false", f"serviceAccount.annotations.{ROLE}=bucket")
    variables = environment(pods(objects)["StatefulSet/scar-ps"]["spec"]["containers"][0])
    assert not any(name.startswith("AWS_") for name in variables)
    assert variables["SCAR_STORE"] == "s3://scar?region=us-east-1"


def test_who_has_the_buckets_role_is_who_uses_the_store(render: Render) -> None:
    """Workers run a user's code: they have no role but one of their own."""
    shared = f"serviceAccount.annotations.{ROLE}=bucket"
    users = dict.fromkeys(("ps", "checkpoint", "recovery", "chaos", "test"), "bucket")
    assert cloud_roles(render(*EVERYTHING, shared)) == users
    own = [f"serviceAccount.componentAnnotations.{name}.{ROLE}={name}" for name in ("worker", "ps")]
    assert cloud_roles(render(*EVERYTHING, shared, *own)) == users | {"worker": "worker", "ps": "ps"}


def metrics_readers(objects: list[Object]) -> list[Object]:
    """Who may reach the port of the metrics, in any policy."""
    return [
        peer
        for policy in of_kind(objects, "NetworkPolicy")
        for rule in policy["spec"].get("ingress", [])
        if {"port": 9090} in rule.get("ports", [{"port": 9090}])
        for peer in rule.get("from", [{}])
    ]


def test_nobody_reads_metrics_unless_he_is_named(render: Render) -> None:
    assert metrics_readers(render(*EVERYTHING)) == []
    prometheus = "networkPolicy.metricsFrom[0].podSelector.matchLabels.app=prometheus"
    assert metrics_readers(render(*EVERYTHING, prometheus)) == [
        {"podSelector": {"matchLabels": {"app": "prometheus"}}}
    ]


def test_no_password_stands_in_an_argument(everything: list[Object]) -> None:
    """Whoever lists the processes of a node sees those."""
    for name, pod in pods(everything).items():
        for container in containers(pod):
            words = " ".join([*container.get("command", []), *container.get("args", [])])
            assert not re.search(r"PASSWORD|SECRET|REDIS|requirepass", words), name


def test_an_annotation_does_not_give_a_password_away(render: Render) -> None:
    """The digest that replaces pods costs who guesses passwords more than a hash, and differs by release."""

    def digests(*more: str) -> set[str]:
        values = ("bundled.minio.enabled=false", "store.accessKey=a", *more)
        return {
            pod["metadata"]["annotations"]["checksum/connections"]
            for pod in pods(render(*values)).values()
            if component(pod) == "ps"
        }

    (one,) = digests("store.secretKey=guessed")
    assert digests("store.secretKey=guessed") == {one}
    assert digests("store.secretKey=other") != {one}
    template = (CHART / "templates" / "_helpers.tpl").read_text()
    assert "derivePassword" in template


def test_names_are_looked_up_in_the_cluster(everything: list[Object]) -> None:
    """What leaves by port 53 to anywhere leaves unseen."""
    (rule,) = named(everything, "NetworkPolicy", "scar-names")["spec"]["egress"]
    assert {port["port"] for port in rule["ports"]} == {53}
    assert rule["to"] == [{"namespaceSelector": {}}, {"ipBlock": {"cidr": "169.254.20.10/32"}}]


def test_a_store_and_a_redis_outside_can_be_narrowed(render: Render) -> None:
    objects = render(
        *("bundled.minio.enabled=false", "bundled.redis.enabled=false", "redis.url=redis://10.0.0.8:6379/0"),
        "networkPolicy.storeTo[0].ipBlock.cidr=10.0.0.7/32",
        "networkPolicy.redisTo[0].ipBlock.cidr=10.0.0.8/32",
    )
    (store,) = named(objects, "NetworkPolicy", "scar-store")["spec"]["egress"]
    assert store["to"] == [{"ipBlock": {"cidr": "10.0.0.7/32"}}]
    (redis,) = named(objects, "NetworkPolicy", "scar-redis-users")["spec"]["egress"]
    assert redis == {"ports": [{"port": 6379}], "to": [{"ipBlock": {"cidr": "10.0.0.8/32"}}]}
