"""The chart and the services speak of the same settings."""

from __future__ import annotations

import json
import re

import pytest

from scar.version import __version__
from scar.wire.timing import HEARTBEAT
from scar_checkpoint.config import CheckpointSettings
from scar_detector.service import DetectorSettings
from scar_ps.config import PsSettings
from scar_recovery.config import RecoverySettings
from scar_runtime.process.config import RedisSettings, ServiceSettings
from scar_worker.config import WorkerSettings
from tests.helm.chart import CHART, EVERYTHING, Object, Render, component, environment, pods

SETTINGS: dict[str, type[ServiceSettings]] = {
    "ps": PsSettings,
    "worker": WorkerSettings,
    "checkpoint": CheckpointSettings,
    "recovery": RecoverySettings,
    "detector": DetectorSettings,
}
# values of training with names of their own
GIVEN = {"train", "job", "start", "workers", "shards", "function"}
GIVEN |= {"arguments", "output"}  # said by `scar train` alone
GIVEN |= {"release", "direct_port"}  # said by the chart itself
SCHEMA = json.loads((CHART / "values.schema.json").read_text())["properties"]


def own(service: str) -> set[str]:
    return set(SETTINGS[service].model_fields) - set(RedisSettings.model_fields) - GIVEN


def snake(name: str) -> str:
    return re.sub(r"(?=[A-Z])", "_", name).lower()


@pytest.mark.parametrize("service", SETTINGS)
def test_every_setting_can_be_given_and_no_other(service: str) -> None:
    key = "training" if service == "worker" else service
    assert {snake(name) for name in SCHEMA[key]["properties"]["settings"]["properties"]} == own(service)


def test_every_variable_is_a_setting_of_its_service(everything: list[Object]) -> None:
    seen = set()
    for pod in pods(everything).values():
        service = component(pod)
        if service in SETTINGS:
            seen.add(service)
            given = {name for name in environment(pod["spec"]["containers"][0]) if name.startswith("SCAR_")}
            fields = {f"SCAR_{field.upper()}" for field in SETTINGS[service].model_fields}
            assert given <= fields | {HEARTBEAT}, service
    assert seen == set(SETTINGS)


def test_all_services_have_one_heartbeat_and_the_lease_that_follows_from_it(render: Render) -> None:
    for values, heartbeat, lease in (
        ([], "0.1", None),
        (["heartbeatSeconds=0.5"], "0.5", None),
        (["leaseSeconds=3"], "0.1", "3"),
    ):
        for pod in pods(render(*values)).values():
            if component(pod) in SETTINGS:
                given = environment(pod["spec"]["containers"][0])
                assert (given[HEARTBEAT], given.get("SCAR_LEASE_SECONDS")) == (heartbeat, lease)


def test_settings_arrive_as_the_service_reads_them(render: Render, monkeypatch: pytest.MonkeyPatch) -> None:
    values = (
        "ps.settings.stagedBytes=1073741824",
        "ps.settings.leaveSeconds=2.5",
        "recovery.settings.rebalance=false",
    )
    for pod in pods(render(*values)).values():
        for name, value in environment(pod["spec"]["containers"][0]).items():
            if component(pod) in ("ps", "recovery") and isinstance(value, str):
                monkeypatch.setenv(name, value.replace("$(POD_IP)", "10.0.0.1"))
    shard, recovery = PsSettings(_cli_parse_args=[]), RecoverySettings(_cli_parse_args=[])
    assert (shard.staged_bytes, shard.leave_seconds, recovery.rebalance) == (1 << 30, 2.5, False)
    assert (shard.listen, shard.direct_port, shard.advertise, shard.recovery) == (
        "0.0.0.0:7070",
        7072,
        "10.0.0.1:7070",
        "scar-recovery:7070",
    )


@pytest.mark.parametrize(("mode", "accepted"), [("off", "true"), ("helm", None)])
def test_pods_serve_others_without_tls_only_where_it_is_off(
    render: Render, mode: str, accepted: str | None
) -> None:
    for pod in pods(render(*EVERYTHING, f"tls.mode={mode}")).values():
        variables = environment(pod["spec"]["containers"][0])
        if "SCAR_LISTEN" in variables:
            assert variables.get("SCAR_INSECURE") == accepted


def test_releases_of_one_name_in_two_namespaces_are_two_clusters(everything: list[Object]) -> None:
    """They may share a bucket and a Redis."""
    found = {
        environment(pod["spec"]["containers"][0]).get("SCAR_CLUSTER") for pod in pods(everything).values()
    }
    assert found - {None} == {"here.scar"}


def test_members_are_named_after_their_pods(everything: list[Object]) -> None:
    for pod in pods(everything).values():
        if component(pod) in SETTINGS:
            variables = environment(pod["spec"]["containers"][0])
            assert variables["SCAR_NAME"] == {"fieldRef": {"fieldPath": "metadata.name"}}
            assert variables["SCAR_ADVERTISE"] == "$(POD_IP):7070"
            # or it is not expanded
            assert list(variables).index("POD_IP") < list(variables).index("SCAR_ADVERTISE")


def test_the_chart_has_the_version_of_the_code() -> None:
    chart = (CHART / "Chart.yaml").read_text()
    assert re.findall(r"^(?:version|appVersion): (.*)$", chart, re.M) == [__version__, __version__]


def test_who_looks_at_pods_is_told_what_they_are_labelled_with(everything: list[Object]) -> None:
    """The name of the cluster is another one."""
    found = pods(everything).values()
    released = {pod["metadata"]["labels"]["app.kubernetes.io/instance"] for pod in found}
    told = {}
    for pod in found:
        variables = environment(pod["spec"]["containers"][0])
        if component(pod) in ("recovery", "chaos"):
            told[component(pod)] = variables["SCAR_RELEASE"]
            assert variables["SCAR_CLUSTER"] not in released
    assert set(told) == {"recovery", "chaos"}
    assert {*told.values()} == released
