"""Certificates of a release that trains: who is kept out, what an upgrade keeps, and how they are renewed."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator

import pytest

from scar.wire.certificates import ROLES
from scar_admin.status import ClusterStatus
from tests.e2e.site import ROOT, Site, missing

if reason := missing():
    pytest.skip(reason, allow_module_level=True)
pytestmark = pytest.mark.timeout(600)

STEADY = str(ROOT / "tests" / "e2e" / "steady.py")
DENIED = (ROOT / "tests" / "e2e" / "denied.py").read_text()
KUBELET_SECONDS = 480.0  # a kubelet looks at Secrets once a minute or two, and at fewer when its node is busy
RENEWED_SECONDS = 60.0  # from the files to the process
OWN_FILE = "import os; print(open(os.environ['SCAR_TLS_CERT']).read())"
CONNECTED = """
import ipaddress, json
rows = [line.split() for line in open("/proc/net/tcp").read().splitlines()[1:]]
port, established = ":%04X" % 7072, "01"
peers = {row[2].partition(":")[0] for row in rows if row[1].endswith(port) and row[3] == established}
print("peers:", json.dumps([str(ipaddress.ip_address(bytes.fromhex(peer)[::-1])) for peer in peers]))
"""
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
        "in the clear, where tensors go": "closed",
        "without a certificate, where tensors go": "closed",
    }
    goes_on(site, before)


def test_pushes_and_pulls_go_over_direct_connections(site: Site) -> None:
    """Of both workers at both shards, on the port that the network policies know."""
    site.until(lambda status: training(status, 5), "training")
    for shard in ("scar-ps-0", "scar-ps-1"):
        said = site.python(shard, CONNECTED)
        assert set(json.loads(said.rpartition("peers: ")[2])) == addresses(site, "worker"), said


def addresses(site: Site, component: str) -> set[str]:
    pods = [site.core.read_namespaced_pod(name, site.namespace) for name in site.pods(component)]
    return {pod.status.pod_ip for pod in pods}


def test_an_upgrade_keeps_certificates_and_pods(site: Site) -> None:
    before = site.until(lambda status: training(status, 5), "training")
    made = certificates(site)
    site.install("upgrade", **SMALL)
    assert certificates(site) == made
    goes_on(site, before)


def test_a_release_with_certificates_is_not_upgraded_to_one_without(site: Site) -> None:
    with pytest.raises(AssertionError, match="runs with TLS, and cannot change over"):
        site.install("upgrade", **SMALL, tls__mode="off")


@pytest.mark.timeout(900)
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
    roles = {**dict.fromkeys(site.pods("worker"), "worker"), **dict.fromkeys(site.pods("ps"), "shard")}
    new = {name: base64.b64decode(renewed[role]["tls.crt"]).decode() for name, role in roles.items()}
    until_none(
        site,
        lambda: [name for name, shown in new.items() if shown.strip() not in site.python(name, OWN_FILE)],
        KUBELET_SECONDS,
        "have the old files",
    )
    until_none(
        site,
        lambda: [name for name in new if '"tls.renewed"' not in log(site, name)],
        RENEWED_SECONDS,
        "have new files and use the old ones",
    )
    goes_on(site, before)


def until_none(site: Site, late: Callable[[], list[str]], seconds: float, what: str) -> None:
    """Wait until ``late`` names no pod; it fails with their logs, restarts and events."""
    deadline = time.monotonic() + seconds
    while names := late():
        assert time.monotonic() < deadline, f"{names} {what}\n{about(site, names)}"
        time.sleep(2)


def about(site: Site, pods: list[str]) -> str:
    states = [site.core.read_namespaced_pod(name, site.namespace).status.container_statuses for name in pods]
    events = site.core.list_namespaced_event(site.namespace).items
    told = [f"{one.involved_object.name}: {one.reason} {one.message} {one.last_timestamp}" for one in events]
    return "\n".join([str(states), *(log(site, name)[-2000:] for name in pods), *told[-40:]])


def log(site: Site, pod: str) -> str:
    text: str = site.core.read_namespaced_pod_log(pod, site.namespace)
    return text
