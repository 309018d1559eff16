"""Releases whose certificates are their owner's own, or cert-manager's, and one that has none: each trains,
and heals a killed shard.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from scar.wire.certificates import ROLES
from scar_admin.status import ClusterStatus
from scar_local.authority import create_authority
from tests.e2e.cert_manager import certificates_issued
from tests.e2e.site import ROOT, WAIT_SECONDS, Site, missing

if reason := missing():
    pytest.skip(reason, allow_module_level=True)
pytestmark = pytest.mark.timeout(600)

STEADY = str(ROOT / "tests" / "e2e" / "steady.py")
DENIED = (ROOT / "tests" / "e2e" / "denied.py").read_text()
SMALL = {"ps__replicas": "2", "bundled__minio__persistence__enabled": "false", "chaos__enabled": "false"}
VICTIM = "scar-ps-1"


def secret_name(role: str) -> str:
    return f"own-{role}"


def make_secrets(site: Site, folder: Path) -> None:
    """As docs/security.md says: an authority of one's own, and a Secret for each role."""
    create_authority(folder, f"{site.namespace}.{site.release}", 1.0)
    ca = (folder / "ca.crt").read_bytes()
    for role in ROLES:
        files = {
            "ca.crt": ca,
            "tls.crt": (folder / f"{role}.crt").read_bytes(),
            "tls.key": (folder / f"{role}.key").read_bytes(),
        }
        data = {name: base64.b64encode(content).decode() for name, content in files.items()}
        site.core.create_namespaced_secret(
            site.namespace, {"metadata": {"name": secret_name(role)}, "data": data}
        )


@contextmanager
def training(site: Site, **values: str) -> Iterator[ClusterStatus]:
    """A release with these values that trains; gone afterwards."""
    site.install(**SMALL, **values)
    try:
        with site.background("train", STEADY, "--shards", "2"):
            yield site.until(
                lambda status: len(status.workers) == 2 and status.clock >= 5, "training to begin"
            )
    finally:
        site.helm("uninstall", site.release, "--wait", "--timeout", "120s")


def heals(site: Site, before: ClusterStatus) -> None:
    """A shard dies without notice; training goes on with its blocks, and the ledger has it."""
    site.run("kill", VICTIM)
    member = before.shards[VICTIM].member
    dead = f"{member.name}@{member.incarnation}"
    site.until(
        lambda status: (
            any(dead in failure.members for failure in status.failures) and status.clock >= before.clock + 10
        ),
        "training to heal and go on",
    )


def denies(site: Site) -> None:
    """A worker's pod gets no further than a worker may, and a stranger nowhere."""
    text = site.python("scar-worker-0", DENIED)
    said = json.loads(text.rpartition("found: ")[2])
    assert set(said["denied"].values()) == {"PERMISSION_DENIED"}, said
    assert said["strangers"]["without TLS"] == said["strangers"]["without a certificate"] == "UNAVAILABLE"


def test_the_owners_own_certificates(site: Site, tmp_path: Path) -> None:
    make_secrets(site, tmp_path)
    named = {f"tls__existingSecrets__{role}": secret_name(role) for role in ROLES}
    with training(site, tls__mode="existingSecret", **named) as before:
        denies(site)
        heals(site, before)
        made = {one.metadata.name for one in site.core.list_namespaced_secret(site.namespace).items}
        assert not [name for name in made if name.startswith("scar-tls-")], "the chart made certificates, too"
    left = {one.metadata.name for one in site.core.list_namespaced_secret(site.namespace).items}
    assert {secret_name(role) for role in ROLES} <= left, "what is the owner's was deleted"


def test_certificates_of_cert_manager(site: Site) -> None:
    """What it renews in mid-training is by the same authority, and nobody is restarted for it."""
    with certificates_issued(site.namespace):
        with training(site, tls__mode="certManager") as before:
            denies(site)
            old = {role: secret(site, f"scar-tls-{role}") for role in ROLES}
            for role in ROLES:
                site.core.delete_namespaced_secret(f"scar-tls-{role}", site.namespace)
            wait_until(lambda: all(issued(site, role) for role in ROLES), "new certificates")
            for role in ROLES:
                new = secret(site, f"scar-tls-{role}")
                assert new["ca.crt"] == old[role]["ca.crt"]
                assert new["tls.crt"] != old[role]["tls.crt"]
            heals(site, before)
        assert all(issued(site, role) for role in ROLES), "uninstalling took Secrets of cert-manager along"


def secret(site: Site, name: str) -> dict[str, str]:
    found: dict[str, str] = site.core.read_namespaced_secret(name, site.namespace).data
    return found


def issued(site: Site, role: str) -> bool:
    return f"scar-tls-{role}" in {
        one.metadata.name for one in site.core.list_namespaced_secret(site.namespace).items
    }


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited {WAIT_SECONDS:g} s for {what}"
        time.sleep(0.5)


def test_no_certificates(site: Site) -> None:
    with training(site, tls__mode="off") as before:
        pod = site.core.read_namespaced_pod("scar-worker-0", site.namespace)
        names = {one.name for one in pod.spec.containers[0].env or ()}
        assert not [name for name in names if name.startswith("SCAR_TLS")]
        heals(site, before)
