"""Certificates of a release: each pod has the files of its own role and no others, whoever makes them."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from scar.wire.certificates import ROLES, TlsFiles, TlsIdentity, find_identity, read_certificate
from tests.helm.chart import CHART, EVERYTHING, Object, Render, component, environment, named, of_kind, pods

Helm = Callable[..., subprocess.CompletedProcess[str]]

COMPONENTS = {
    "ps": "shard",
    "chaos": "operator",
    "test": "reader",
    "console": "reader",
}  # -> role, where they differ
OTHERS = {"minio", "redis"}
SIGNERS = {"shard", "checkpoint", "recovery"}  # of what is stored
OWN = tuple(f"tls.existingSecrets.{role}=my-{role}" for role in ROLES)
MODES = {
    "helm": ("tls.mode=helm",),
    "certManager": ("tls.mode=certManager",),
    "existingSecret": ("tls.mode=existingSecret", *OWN),
}


@pytest.fixture(scope="module", params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def made(render: Render, mode: str) -> list[Object]:
    return render(*EVERYTHING, *MODES[mode], "training.path=/train.py")


def secret_of(mode: str, role: str) -> str:
    return f"my-{role}" if mode == "existingSecret" else f"scar-tls-{role}"


def mounted(pod: Object) -> dict[str, str]:
    """Secrets whose volume the pod has -> where."""
    volumes = {one["name"]: one["secret"]["secretName"] for one in pod["spec"]["volumes"] if "secret" in one}
    mounts = pod["spec"]["containers"][0].get("volumeMounts", [])
    return {volumes[one["name"]]: one["mountPath"] for one in mounts if one["name"] in volumes}


def test_each_pod_has_the_certificate_of_its_role_alone(made: list[Object], mode: str) -> None:
    seen = set()
    for name, pod in pods(made).items():
        if component(pod) in OTHERS:
            continue
        role = COMPONENTS.get(component(pod), component(pod))
        seen.add(role)
        signs = {"scar-store-key": "/etc/scar/store-key"} if role in SIGNERS else {}
        token = {"scar-console": "/etc/scar/console"} if component(pod) == "console" else {}
        assert mounted(pod) == {secret_of(mode, role): "/etc/scar/tls", **signs, **token}, name
        variables = environment(pod["spec"]["containers"][0])
        assert variables["SCAR_TLS_CERT"] == "/etc/scar/tls/tls.crt", name
        assert variables["SCAR_TLS_KEY"] == "/etc/scar/tls/tls.key", name
        assert variables["SCAR_TLS_CA"] == "/etc/scar/tls/ca.crt", name
        (volume,) = [one for one in pod["spec"]["volumes"] if one["name"] == "tls"]
        assert [item["key"] for item in volume["secret"]["items"]] == ["tls.crt", "tls.key", "ca.crt"]
        assert volume["secret"]["defaultMode"] == 0o440, "not for everybody in the container"
    assert seen == set(ROLES)


def test_kubelets_still_need_no_certificate(made: list[Object]) -> None:
    for pod in pods(made).values():
        for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
            found = pod["spec"]["containers"][0].get(probe, {}).get("grpc", {})
            assert found.get("port", 7071) == 7071


def test_who_uses_the_release_from_outside_is_told_the_operators_secret(
    made: list[Object], mode: str
) -> None:
    service = named(made, "Service", "scar-recovery")
    told = service["metadata"]["annotations"]["scar.dev/operator-secret"]
    assert told == secret_of(mode, "operator")


def test_no_private_key_stands_outside_of_a_secret(made: list[Object]) -> None:
    secrets = of_kind(made, "Secret")
    keys = [one.get("data", {}).get("tls.key", "") for one in secrets]
    others = yaml.safe_dump_all([one for one in made if one["kind"] != "Secret"])
    assert "PRIVATE KEY" not in others
    assert base64.b64encode(b"PRIVATE KEY").decode().rstrip("=") not in others
    assert not any(key and key in others for key in keys)


def made_by_helm(objects: list[Object], folder: Path) -> dict[str, TlsFiles]:
    """Role -> files with what its Secret has."""
    found = {}
    for role in ROLES:
        secret = named(objects, "Secret", f"scar-tls-{role}")
        assert secret["type"] == "kubernetes.io/tls"
        assert set(secret["data"]) == {"tls.crt", "tls.key", "ca.crt"}
        (folder / role).mkdir()
        for key, value in secret["data"].items():
            (folder / role / key).write_bytes(base64.b64decode(value))
        found[role] = TlsFiles(*(folder / role / key for key in ("tls.crt", "tls.key", "ca.crt")))
    return found


def test_helms_own_certificates_are_what_processes_accept(render: Render, tmp_path: Path) -> None:
    """The handshake with itself checks both usages, key and authority."""
    objects = render("tls.mode=helm", "tls.helm.days=30")
    files = made_by_helm(objects, tmp_path)
    for role, one in files.items():
        assert read_certificate(one).identity == TlsIdentity(role, "here.scar")
    assert len({one.ca.read_bytes() for one in files.values()}) == 1, "one authority for all"
    assert len({one.key.read_bytes() for one in files.values()}) == len(ROLES)


def test_no_pod_has_the_key_of_the_authority(render: Render) -> None:
    objects = render(*EVERYTHING, "tls.mode=helm")
    assert "tls.key" in named(objects, "Secret", "scar-tls-ca")["data"]
    assert not any("scar-tls-ca" in yaml.safe_dump(pod) for pod in pods(objects).values())


def test_they_are_renewed_in_the_middle_of_their_life(render: Render) -> None:
    times = {}
    for days in (10, 40):
        secret = named(render("tls.mode=helm", f"tls.helm.days={days}"), "Secret", "scar-tls-shard")
        times[days] = int(secret["metadata"]["annotations"]["scar.dev/renew-after"])
    assert 15 * 86400 <= times[40] - times[10] <= 15 * 86400 + 60


@pytest.mark.parametrize("namespace", ["n" * 53, "n" * 53 + "-x", "n" * 63])
def test_a_long_name_of_a_cluster_can_be_in_a_certificate(helm: Helm, namespace: str) -> None:
    """Also where it would be cut behind a dot or a dash."""
    options = ("--namespace", namespace, "--set", "tls.mode=certManager")
    done = helm("template", "scar-of-team-a", str(CHART), *options)
    assert done.returncode == 0, done.stderr
    objects = [one for one in yaml.safe_load_all(done.stdout) if one]
    (name,) = named(objects, "Certificate", "scar-of-team-a-tls-shard")["spec"]["dnsNames"]
    identity = find_identity([name])
    assert identity is not None
    shard = named(objects, "StatefulSet", "scar-of-team-a-ps")["spec"]["template"]
    assert environment(shard["spec"]["containers"][0])["SCAR_CLUSTER"] == identity.cluster


def cert_manager(objects: list[Object], kind: str) -> dict[str, Any]:
    found = {one["metadata"]["name"]: one for one in of_kind(objects, kind)}
    assert all(one["apiVersion"] == "cert-manager.io/v1" for one in found.values())
    return {name: one["spec"] for name, one in found.items()}


def test_cert_manager_gets_an_authority_of_the_release(render: Render) -> None:
    objects = render("tls.mode=certManager", "tls.certManager.days=9")
    issuers, wanted = cert_manager(objects, "Issuer"), cert_manager(objects, "Certificate")
    assert issuers == {"scar-tls-root": {"selfSigned": {}}, "scar-tls": {"ca": {"secretName": "scar-tls-ca"}}}
    authority = wanted.pop("scar-tls-ca")
    assert authority["isCA"] is True
    assert authority["secretName"] == "scar-tls-ca"
    assert authority["issuerRef"]["name"] == "scar-tls-root"
    assert set(wanted) == {f"scar-tls-{role}" for role in ROLES}
    for role in ROLES:
        spec = wanted[f"scar-tls-{role}"]
        assert spec["secretName"] == f"scar-tls-{role}"
        assert spec["dnsNames"] == [TlsIdentity(role, "here.scar").name]
        assert {"server auth", "client auth"} <= set(spec["usages"])
        assert spec["duration"] == "216h"
        assert spec["issuerRef"] == {"name": "scar-tls", "kind": "Issuer", "group": "cert-manager.io"}
    assert not [one for one in of_kind(objects, "Secret") if "tls" in one["metadata"]["name"]]


def test_cert_manager_with_an_issuer_of_ones_own(render: Render) -> None:
    own = ("tls.certManager.issuerRef.name=corporate", "tls.certManager.issuerRef.kind=ClusterIssuer")
    objects = render("tls.mode=certManager", *own)
    assert cert_manager(objects, "Issuer") == {}
    wanted = cert_manager(objects, "Certificate")
    assert set(wanted) == {f"scar-tls-{role}" for role in ROLES}
    expected = {"name": "corporate", "kind": "ClusterIssuer", "group": "cert-manager.io"}
    assert all(spec["issuerRef"] == expected for spec in wanted.values())


def test_ones_own_secrets_are_all_that_is_used(render: Render) -> None:
    objects = render(*MODES["existingSecret"])
    assert cert_manager(objects, "Certificate") == cert_manager(objects, "Issuer") == {}
    assert not [one for one in of_kind(objects, "Secret") if "tls" in one["metadata"]["name"]]


@pytest.mark.parametrize("off", ["--set", "--set-string", "--set-json"])
def test_off_is_off_however_it_is_written(helm: Helm, off: str) -> None:
    """YAML reads an unquoted off as false."""
    word = "tls.mode=false" if off == "--set-json" else "tls.mode=off"
    done = helm("template", "scar", str(CHART), off, word, "--set", "chaos.enabled=true")
    assert done.returncode == 0, done.stderr
    objects = [one for one in yaml.safe_load_all(done.stdout) if one]
    for name, pod in pods(objects).items():
        assert "SCAR_TLS_CERT" not in environment(pod["spec"]["containers"][0]), name
        assert not any(one["name"] == "tls" for one in pod["spec"]["volumes"]), name
    told = named(objects, "Service", "scar-recovery")["metadata"]["annotations"]
    assert "scar.dev/operator-secret" not in told
    assert not [one for one in of_kind(objects, "Secret") if "tls" in one["metadata"]["name"]]


@pytest.mark.parametrize("role", ROLES)
def test_a_role_without_a_secret_is_named(helm: Helm, role: str) -> None:
    given = [word for value in OWN if f".{role}=" not in value for word in ("--set", value)]
    done = helm("template", "scar", str(CHART), "--set", "tls.mode=existingSecret", *given)
    assert done.returncode != 0
    assert f"tls.existingSecrets.{role} is not set" in done.stderr


@pytest.mark.parametrize("mode", ["helm", "certManager", "off"])
def test_a_secret_that_nobody_would_use_is_refused(helm: Helm, mode: str) -> None:
    done = helm("template", "scar", str(CHART), "--set", f"tls.mode={mode},{OWN[0]}")
    assert done.returncode != 0
    assert f"{OWN[0].partition('=')[0]} is set, but tls.mode is {mode}" in done.stderr
