"""A store and a Redis with certificates of a private CA, and what else a user adds to pods."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from tests.helm.chart import CHART, Object, Render, component, environment, pods

OUTSIDE = (
    "bundled.minio.enabled=false",
    "bundled.redis.enabled=false",
    "store.endpoint=https://s3.example.com",
    "redis.url=rediss://redis.example.com:6380/0",
)
STORE_USERS = {"ps", "checkpoint", "recovery", "chaos", "test"}
REDIS_USERS = {"ps", "checkpoint", "recovery", "detector", "test"}


def mounted_secrets(pod: Object) -> dict[str, str]:
    """Where each Secret of this pod lies."""
    secrets = {one["name"]: one["secret"]["secretName"] for one in pod["spec"]["volumes"] if "secret" in one}
    mounts = pod["spec"]["containers"][0]["volumeMounts"]
    return {secrets[one["name"]]: one["mountPath"] for one in mounts if one["name"] in secrets}


def test_each_pod_gets_the_cas_of_the_servers_that_it_uses(render: Render) -> None:
    own = ("store.tls.caSecret=s3-ca", "redis.tls.caSecret=cache-ca", "chaos.enabled=true")
    for name, pod in pods(render(*OUTSIDE, *own)).items():
        variables, secrets = environment(pod["spec"]["containers"][0]), mounted_secrets(pod)
        if component(pod) in REDIS_USERS:
            assert variables["SCAR_REDIS_CA"] == f"{secrets['cache-ca']}/ca.crt", name
        else:
            assert "SCAR_REDIS_CA" not in variables, name
            assert "cache-ca" not in secrets, name
        if component(pod) in STORE_USERS:
            assert variables["AWS_CA_BUNDLE"] == f"{secrets['s3-ca']}/ca.crt", name
        else:
            assert "AWS_CA_BUNDLE" not in variables, name
            assert "s3-ca" not in secrets, name


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (("store.tls.caSecret=ca",), "store.tls.caSecret"),
        ((*OUTSIDE, "store.endpoint=http://s3", "store.tls.caSecret=ca"), "store.tls.caSecret"),
        (("redis.tls.caSecret=ca",), "redis.tls.caSecret"),
        ((*OUTSIDE, "redis.url=redis://r", "redis.tls.caSecret=ca"), "redis.tls.caSecret"),
    ],
)
def test_a_ca_for_a_server_without_tls_is_refused(
    helm: Callable[..., subprocess.CompletedProcess[str]], wrong: tuple[str, ...], named: str
) -> None:
    done = helm("template", "scar", str(CHART), *(word for value in wrong for word in ("--set", value)))
    assert done.returncode != 0
    assert f"{named} is set, but" in done.stderr


def extra(place: str) -> list[str]:
    return [
        f"{place}.extraEnv[0].name=HTTPS_PROXY",
        f"{place}.extraEnv[0].value=http://proxy",
        f"{place}.extraVolumes[0].name=certs",
        f"{place}.extraVolumes[0].configMap.name=certs",
        f"{place}.extraVolumeMounts[0].name=certs",
        f"{place}.extraVolumeMounts[0].mountPath=/certs",
    ]


@pytest.mark.parametrize("place", ["pod", "ps.pod", "training.pod"])
def test_environment_and_volumes_are_added(render: Render, place: str) -> None:
    got = set()
    for pod in pods(render(*extra(place))).values():
        container = pod["spec"]["containers"][0]
        if environment(container).get("HTTPS_PROXY") == "http://proxy":
            assert {"name": "certs", "configMap": {"name": "certs"}} in pod["spec"]["volumes"]
            assert {"name": "certs", "mountPath": "/certs"} in container["volumeMounts"]
            got.add(component(pod))
    services = {"ps", "worker", "checkpoint", "recovery", "detector", "test"}
    assert got == {"pod": services, "ps.pod": {"ps"}, "training.pod": {"worker"}}[place]
