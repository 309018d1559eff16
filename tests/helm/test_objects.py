"""What the chart makes, and that it means what the services need."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from scar_cli.console import TOKEN
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
    program,
    template,
)

SERVICES = ("ps", "worker", "checkpoint", "recovery", "detector")


def test_both_helms_render_the_same(everything: list[Object]) -> None:
    older = template(program("helm3"), *EVERYTHING, files=(f"training.file={ROOT / 'examples' / 'mlr.py'}",))

    def plain(objects: list[Object]) -> dict[str, Object]:
        return {f"{one['kind']}/{one['metadata']['name']}": one for one in objects if one["kind"] != "Secret"}

    assert plain(older) == plain(everything)


@pytest.mark.parametrize(
    ("release", "name"), [("scar", "scar"), ("my-scar", "my-scar"), ("train", "train-scar")]
)
def test_names_follow_the_release(render: Render, release: str, name: str) -> None:
    objects = render(release=release)
    assert named(objects, "StatefulSet", f"{name}-ps")["spec"]["serviceName"] == f"{name}-ps"
    assert all(one["metadata"]["labels"]["app.kubernetes.io/instance"] == release for one in objects)


@pytest.mark.parametrize("service", SERVICES)
def test_probes_ask_for_progress_and_for_readiness(everything: list[Object], service: str) -> None:
    for pod in (pod for pod in pods(everything).values() if component(pod) == service):
        (container,) = pod["spec"]["containers"]
        assert container["name"] == service
        assert container["livenessProbe"]["grpc"] == {"port": 7071, "service": "liveness"}
        assert container["startupProbe"]["grpc"] == {"port": 7071, "service": "liveness"}
        assert container["readinessProbe"]["grpc"] == {"port": 7071, "service": "readiness"}


@pytest.mark.parametrize("service", SERVICES)
def test_members_are_found_before_they_are_ready(everything: list[Object], service: str) -> None:
    spec = named(everything, "Service", f"scar-{service}")["spec"]
    assert spec["clusterIP"] == "None"
    assert spec["publishNotReadyAddresses"] is True


def test_one_leads_and_one_stands_by(everything: list[Object]) -> None:
    replicas = {one["metadata"]["name"]: one["spec"]["replicas"] for one in of_kind(everything, "Deployment")}
    once = {"scar-redis": 1, "scar-console": 1}
    assert replicas == {"scar-checkpoint": 2, "scar-recovery": 2, "scar-detector": 2, **once}
    budgets = {
        one["metadata"]["name"]: one["spec"]["maxUnavailable"]
        for one in of_kind(everything, "PodDisruptionBudget")
    }
    assert budgets == {"scar-ps": 1, "scar-checkpoint": 1, "scar-recovery": 1, "scar-detector": 1}


def test_a_shard_has_time_to_hand_its_blocks_over(everything: list[Object]) -> None:
    pod = pods(everything)["StatefulSet/scar-ps"]
    leave = next(
        one["value"] for one in pod["spec"]["containers"][0]["env"] if one["name"] == "SCAR_LEAVE_SECONDS"
    )
    assert pod["spec"]["terminationGracePeriodSeconds"] >= float(leave) + 5


def test_no_training_no_workers(render: Render) -> None:
    assert [one["metadata"]["name"] for one in of_kind(render(), "StatefulSet")] == ["scar-minio", "scar-ps"]


def test_the_training_file_arrives_as_it_is(everything: list[Object]) -> None:
    assert (
        named(everything, "ConfigMap", "scar-training")["data"]["train.py"]
        == (ROOT / "examples" / "mlr.py").read_text()
    )
    pod = pods(everything)["StatefulSet/scar-worker"]
    variables = {one["name"]: one.get("value") for one in pod["spec"]["containers"][0]["env"]}
    assert variables["SCAR_TRAIN"] == "/etc/scar/training/train.py"
    assert (variables["SCAR_START"], variables["SCAR_WORKERS"]) == ("auto", "2")


def test_another_file_replaces_the_workers(render: Render, tmp_path: Path) -> None:
    seen = set()
    for text in ("a = 1", "a = 2"):
        (tmp_path / "train.py").write_text(text)
        pod = pods(render(files=(f"training.file={tmp_path / 'train.py'}",)))["StatefulSet/scar-worker"]
        seen.add(pod["metadata"]["annotations"]["checksum/content"])
    assert len(seen) == 2


def test_an_upgrade_whose_worker_fails_at_once_leaves_the_others(everything: list[Object]) -> None:
    """Kubernetes replaces the next one when the one before has been ready for so long."""
    assert named(everything, "StatefulSet", "scar-worker")["spec"]["minReadySeconds"] >= 10


def test_a_file_in_an_image_of_ones_own(render: Render) -> None:
    objects = render(
        "training.path=/job/train.py",
        "training.image.repository=me/job",
        "training.image.tag=v7",
        "training.job=x",
    )
    pod = pods(objects)["StatefulSet/scar-worker"]
    (container,) = pod["spec"]["containers"]
    variables = {one["name"]: one.get("value") for one in container["env"]}
    assert container["image"] == "me/job:v7"
    assert (variables["SCAR_TRAIN"], variables["SCAR_JOB"]) == ("/job/train.py", "x")
    assert [volume["name"] for volume in pod["spec"]["volumes"]] == ["tmp", "tls"]


def test_an_image_with_a_digest_is_taken_by_it_alone(render: Render) -> None:
    digest = f"sha256:{'0123456789abcdef' * 4}"
    keys = ("image", "training.image", "bundled.redis.image", "bundled.minio.image")
    objects = render(
        *(f"{key}.digest={digest}" for key in keys),
        "training.path=/job/train.py",
        "training.image.repository=me/job",
    )
    images = {container["image"] for pod in pods(objects).values() for container in containers(pod)}
    assert images == {f"{name}@{digest}" for name in ("scar", "me/job", "redis", "quay.io/minio/minio")}


def test_the_worker_template_is_the_workers_own(everything: list[Object]) -> None:
    """What `scar train --on kubernetes` fills in differs from the chart's own workers in nothing but the
    job.
    """
    own = named(everything, "StatefulSet", "scar-worker")
    other = yaml.safe_load(named(everything, "ConfigMap", "scar-worker-template")["data"]["statefulset.yaml"])
    variables = {one["name"]: one for one in other["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert (other["spec"]["replicas"], variables["SCAR_START"]["value"]) == (0, "no")
    for workers in (own, other):
        container = workers["spec"]["template"]["spec"]["containers"][0]
        container["env"] = [
            one for one in container["env"] if one["name"] not in ("SCAR_START", "SCAR_WORKERS")
        ]
        workers["spec"]["template"]["metadata"]["annotations"].pop("checksum/content", None)
        workers["spec"]["replicas"] = 2
    assert own == other


def test_where_pods_run_can_be_said_for_all_and_for_one(render: Render) -> None:
    found = pods(
        render(
            "pod.nodeSelector.pool=cpu",
            "pod.priorityClassName=low",
            "ps.pod.priorityClassName=high",
            "ps.pod.labels.a=b",
        )
    )
    shard, recovery = found["StatefulSet/scar-ps"], found["Deployment/scar-recovery"]
    assert shard["spec"]["nodeSelector"] == recovery["spec"]["nodeSelector"] == {"pool": "cpu"}
    assert (shard["spec"]["priorityClassName"], recovery["spec"]["priorityClassName"]) == ("high", "low")
    assert shard["metadata"]["labels"]["a"] == "b"
    assert "a" not in recovery["metadata"]["labels"]


LABELS = ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]


def test_pods_of_one_service_keep_apart_where_they_can(everything: list[Object]) -> None:
    """Each label counts by itself: nodes without a zone must not end the spreading over nodes."""
    for pod in pods(everything).values():
        if component(pod) in SERVICES:
            rules = pod["spec"]["affinity"]["podAntiAffinity"][
                "preferredDuringSchedulingIgnoredDuringExecution"
            ]
            terms = [rule["podAffinityTerm"] for rule in rules]
            assert [term["topologyKey"] for term in terms] == LABELS
            assert "topologySpreadConstraints" not in pod["spec"]
            wanted = terms[0]["labelSelector"]["matchLabels"]
            assert wanted.items() <= pod["metadata"]["labels"].items()
            assert wanted["app.kubernetes.io/component"] == component(pod)


def test_spreading_can_be_demanded_and_left_to_the_user(render: Render) -> None:
    pod = pods(render("spread.whenUnsatisfiable=DoNotSchedule"))["Deployment/scar-detector"]
    constraints = pod["spec"]["topologySpreadConstraints"]
    assert [(one["topologyKey"], one["whenUnsatisfiable"]) for one in constraints] == [
        (key, "DoNotSchedule") for key in LABELS
    ]
    assert "affinity" not in pod["spec"]
    mine = "requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey=rack"
    pod = pods(render(f"detector.pod.affinity.podAntiAffinity.{mine}"))["Deployment/scar-detector"]
    assert list(pod["spec"]["affinity"]["podAntiAffinity"]) == [
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    alone = pods(render("spread.topologyKeys=null"))["Deployment/scar-detector"]["spec"]
    assert "affinity" not in alone


@pytest.mark.parametrize(("keep", "policy"), [("true", "Retain"), ("false", "Delete")])
def test_the_bucket_outlives_the_release_if_wanted(render: Render, keep: str, policy: str) -> None:
    minio = named(render(f"bundled.minio.persistence.keep={keep}"), "StatefulSet", "scar-minio")
    assert minio["spec"]["persistentVolumeClaimRetentionPolicy"]["whenDeleted"] == policy


@pytest.mark.parametrize("logs", [False, True])
def test_the_page_in_a_pod_reads_logs_only_where_it_may(render: Render, logs: bool) -> None:
    made = render("console.enabled=true", f"console.logs={str(logs).lower()}")
    pod = pods(made)["Deployment/scar-console"]
    assert pod["spec"]["automountServiceAccountToken"] is logs
    assert ("--pod-logs" in pod["spec"]["containers"][0]["args"]) is logs
    roles = [one for one in of_kind(made, "Role") if one["metadata"]["name"] == "scar-console"]
    assert [(rule["resources"], rule["verbs"]) for role in roles for rule in role["rules"]] == (
        [(["pods"], ["list"]), (["pods/log"], ["get"])] if logs else []
    )
    way = named(made, "NetworkPolicy", "scar-api-server")["spec"]["podSelector"]["matchExpressions"][-1]
    assert ("console" in way["values"]) is logs


def test_traces_are_sent_where_they_are_asked_for(render: Render) -> None:
    endpoint = "http://otel-collector.observability:4317"
    made = render(f"tracing.endpoint={endpoint}")
    traced = {
        name
        for name, pod in pods(made).items()
        if environment(pod["spec"]["containers"][0]).get("SCAR_TRACES") == endpoint
    }
    assert {one.rpartition("scar-")[2] for one in traced} >= {
        "ps",
        "worker",
        "checkpoint",
        "recovery",
        "detector",
    }
    policy = named(made, "NetworkPolicy", "scar-traces")["spec"]
    assert policy["egress"] == [{"ports": [{"port": 4317}]}]
    off = render()
    assert not any(one["metadata"]["name"] == "scar-traces" for one in of_kind(off, "NetworkPolicy"))
    assert not any("SCAR_TRACES" in environment(pod["spec"]["containers"][0]) for pod in pods(off).values())


def test_the_page_is_told_whether_chaos_is_allowed(render: Render) -> None:
    for enabled, word in ((True, "allowed"), (False, "refused")):
        service = named(render(f"chaos.enabled={str(enabled).lower()}"), "Service", "scar-recovery")
        assert service["metadata"]["annotations"]["scar.dev/chaos"] == word


def test_chaos_runs_when_it_is_asked_to(render: Render) -> None:
    asleep = named(render("chaos.enabled=true"), "CronJob", "scar-chaos")["spec"]
    awake = named(
        render("chaos.enabled=true", "chaos.schedule=0 * * * *", "chaos.seed=7"), "CronJob", "scar-chaos"
    )["spec"]
    assert (asleep["suspend"], awake["suspend"], awake["schedule"]) == (True, False, "0 * * * *")
    (container,) = awake["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    assert container["args"][:7] == ["python", "-m", "scar_chaos", "--on", "kubernetes", "--seed", "7"]
    gate = named(render("chaos.enabled=true"), "Job", "scar-chaos-gate")
    assert gate["metadata"]["annotations"]["helm.sh/hook"] == "test"
    assert gate["spec"]["backoffLimit"] == 0


def test_the_console_is_there_when_asked_for_and_nobody_reaches_it(
    everything: list[Object], render: Render
) -> None:
    assert [one for one in render() if one["metadata"]["name"] == "scar-console"] == []
    pod = pods(everything)["Deployment/scar-console"]
    (container,) = pod["spec"]["containers"]
    assert container["args"] == [
        *("scar", "console", "--recovery", "$(SCAR_RECOVERY)", "--port", "8080"),
        *("--token-file", "/etc/scar/console/token"),
    ]
    assert environment(container)["SCAR_RECOVERY"] == "scar-recovery:7070"
    assert "ports" not in container, "it listens inside the pod alone"
    assert [one["metadata"]["name"] for one in of_kind(everything, "Service") if "console" in str(one)] == []
    token = named(everything, "Secret", "scar-console")["stringData"]["token"]
    assert TOKEN.fullmatch(token), "or the console would refuse it"
    policy = named(everything, "NetworkPolicy", "scar-console")["spec"]
    assert policy["policyTypes"] == ["Egress"]
    assert [rule["ports"] for rule in policy["egress"]] == [[{"port": 7070}]]


def test_alerts_and_dashboard_ask_for_metrics_that_exist(everything: list[Object]) -> None:
    sources = "\n".join(path.read_text() for path in (ROOT / "services").rglob("metrics.py"))
    known = {name.removesuffix("_info") for name in re.findall(r'"(scar_\w+)"', sources)}
    rules = named(everything, "PrometheusRule", "scar-alerts")["spec"]["groups"][0]["rules"]
    boards = [json.loads(one) for one in named(everything, "ConfigMap", "scar-dashboard")["data"].values()]
    assert [board["title"] for board in boards] == ["SCAR run", "SCAR system"]
    panels = [panel for board in boards for panel in board["panels"]]
    notes = [note for board in boards for note in board.get("annotations", {}).get("list", [])]
    asked = [one["expr"] for one in (*rules, *notes)]
    asked += [target["expr"] for panel in panels for target in panel["targets"]]
    used = {name for expression in asked for name in re.findall(r"\bscar_\w+", expression)}
    assert {re.sub(r"_(total|bucket|count|sum)$", "", name) for name in used} <= known
    assert all("@" not in expression for expression in asked)
    runbook = (ROOT / "docs" / "operations.md").read_text()
    assert [rule["alert"] for rule in rules if f"### {rule['alert']}" not in runbook] == []


def test_every_value_is_documented() -> None:
    page = (ROOT / "docs" / "values.md").read_text()
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    settled = {"labels", "metricsFrom", "dnsTo", "settings", "resources", "topologyKeys"}

    def leaves(found: object, path: str) -> list[str]:
        if not isinstance(found, dict) or not found or path.rpartition(".")[2] in settled:
            return [path]
        return [leaf for key, inner in found.items() for leaf in leaves(inner, f"{path}.{key}".lstrip("."))]

    assert [leaf for leaf in leaves(values, "") if f"| `{leaf}` |" not in page] == []


def test_the_api_server_accepts_it(render: Render) -> None:
    """Only where a cluster is there: what no schema of ours can know."""
    kubectl = shutil.which("kubectl")
    if (
        kubectl is None
        or subprocess.run([kubectl, "version", "--request-timeout=2s"], capture_output=True).returncode
    ):
        pytest.skip("no cluster is there: set KUBECONFIG to have the API server check every object")
    # a pod needs its service account first
    objects = [one for one in render(*EVERYTHING[:1]) if one["kind"] != "Pod"]
    for one in objects:
        one["metadata"].pop("namespace", None)
    text = yaml.safe_dump_all(objects)
    command = [kubectl, "apply", "--dry-run=server", "--namespace=default", "-f", "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
