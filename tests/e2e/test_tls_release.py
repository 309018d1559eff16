"""Certificates of a release that trains: who is kept out, what an upgrade keeps, and how they are renewed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from scar.wire.certificates import ROLES
from scar_admin.status import ClusterStatus
from tests.e2e.site import ROOT, Site, missing

if reason := missing():
    pytest.skip(reason, allow_module_level=True)
pytestmark = pytest.mark.timeout(600)

STEADY = str(ROOT / "tests" / "e2e" / "steady.py")
DENIED = (ROOT / "tests" / "e2e" / "denied.py").read_text()
RENEWED_SECONDS = 300.0  # a kubelet looks at Secrets once a minute or two, and nodes may be busy
SMALL = {"ps__replicas": "2", "bundled__minio__persistence__enabled": "false", "chaos__enabled": "false"}


@pytest.fixture(scope="module", autouse=True)
def _training(site: Site) -> Iterator[None]:
    site.install(**SMALL)
    with site.background("train", STEADY, "--shards", "2"):
        site.until(lambda status: training(status, 5), "training to begin")
        yield


def training(status: ClusterStatus, clock: int) -> bool:
    return len(status.workers) == 2 and status.clock >= clock


def lives(status: ClusterStatus) -> dict[str, str]:
    members = [*status.workers.values(), *status.shards.values()]
    return {one.member.name: one.member.incarnation for one in members}


def certificates(site: Site) -> dict[str, dict[str, str]]:
    """Role, or "ca" -> what its Secret has."""
    return {
        role: site.core.read_namespaced_secret(f"scar-tls-{role}", site.namespace).data
        for role in (*ROLES, "ca")
    }


def goes_on(site: Site, before: ClusterStatus) -> None:
    """Nobody was restarted, and the ledger has nothing new."""
    after = site.until(lambda status: training(status, before.clock + 5), "training to go on")
    assert lives(after) == lives(before)
    assert len(after.failures) == len(before.failures)


def test_a_workers_pod_is_denied_what_workers_may_not_do(site: Site) -> None:
    before = site.until(lambda status: training(status, 5), "training")
    text = site.python("scar-worker-0", DENIED)
    assert "found: " in text, text
    said = json.loads(text.rpartition("found: ")[2])
    denied = said["denied"]
    assert set(denied.values()) == {"PERMISSION_DENIED"}, denied
    for method in ("ReportFailure", "ListFailures", "Renew"):
        assert f"Recovery/{method}" in denied
    for method in ("Adopt", "Freeze", "Claim", "Save"):
        assert f"ShardControl/{method}" in denied
    assert {"ShardData/Fetch", "ShardData/Ship", "Checkpoint/Trigger", "MemberService/Watch"} <= set(denied)
    assert said["strangers"] == {
        "without TLS": "UNAVAILABLE",
        "without a certificate": "UNAVAILABLE",
        "with a certificate": "OK",
    }
    goes_on(site, before)


def test_an_upgrade_keeps_certificates_and_pods(site: Site) -> None:
    before = site.until(lambda status: training(status, 5), "training")
    made = certificates(site)
    site.install("upgrade", **SMALL)
    assert certificates(site) == made
    goes_on(site, before)


def test_a_release_with_certificates_is_not_upgraded_to_one_without(site: Site) -> None:
    with pytest.raises(AssertionError, match="runs with TLS, and cannot change over"):
        site.install("upgrade", **SMALL, tls__mode="off")


def test_they_are_renewed_while_training_goes_on(site: Site) -> None:
    """Those of all roles at once, by the same authority."""
    before = site.until(lambda status: training(status, 5), "training")
    made = certificates(site)
    for role in ROLES:
        site.core.delete_namespaced_secret(f"scar-tls-{role}", site.namespace)
    site.install("upgrade", **SMALL)
    renewed = certificates(site)
    assert renewed.pop("ca") == made.pop("ca")
    for role in ROLES:
        assert renewed[role]["ca.crt"] == made[role]["ca.crt"]
        assert renewed[role]["tls.crt"] != made[role]["tls.crt"]
    deadline = time.monotonic() + RENEWED_SECONDS
    while late := [name for name in members(site) if '"tls.renewed"' not in log(site, name)]:
        assert time.monotonic() < deadline, f"{late} still use their old certificates"
        time.sleep(2)
    goes_on(site, before)


def members(site: Site) -> list[str]:
    """Pods that call, or are called, all the time."""
    return [*site.pods("worker"), *site.pods("ps")]


def log(site: Site, pod: str) -> str:
    text: str = site.core.read_namespaced_pod_log(pod, site.namespace)
    return text
