"""A release goes to the next version and back, under a training that counts: see "Upgrading" in
docs/operations.md. The next version has a protocol number of its own, and still serves this one; a later
one does not.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from kubernetes.client import ApiException

from scar.version import PROTOCOL
from scar_admin.status import ClusterStatus
from tests.e2e.site import READY_SECONDS, ROOT, Site, missing

if reason := missing():
    pytest.skip(reason, allow_module_level=True)
pytestmark = pytest.mark.timeout(900)

COUNTING = ROOT / "tests" / "e2e" / "counting.py"
TRAINING = ("--set-file", f"training.file={COUNTING}")
SMALL = {"ps__replicas": "2", "chaos__enabled": "false"}
COMPONENTS = ("ps", "checkpoint", "recovery", "detector", "worker")
CLOCKS = 20
SECONDS = 300.0  # for pods that are replaced on busy nodes
VERSION = (ROOT / "sdk" / "scar" / "version.py").read_text()
NEWER = {
    "metadata": {"name": "newer"},
    "data": {"version.py": VERSION.replace(f"PROTOCOL = {PROTOCOL}\n", f"PROTOCOL = {PROTOCOL + 1}\n", 1)},
}
HAS_NEWER = {
    "extraVolumes": [{"name": "newer", "configMap": {"name": "newer"}}],
    "extraVolumeMounts": [
        {
            "name": "newer",
            "mountPath": "/opt/scar/lib/python3.11/site-packages/scar/version.py",
            "subPath": "version.py",
        }
    ],
}


@pytest.fixture(scope="module", autouse=True)
def _training(next_image: str, site: Site) -> None:
    """``next_image``: made before anything trains."""
    site.install("install", *TRAINING, **SMALL)
    site.until(lambda status: training(status, CLOCKS), "training to begin", SECONDS)


def training(status: ClusterStatus, clock: int) -> bool:
    """Both shards and both workers are there, and a loss is known that is not older than this clock."""
    return len(status.shards) == len(status.workers) == 2 and min(status.clock, status.loss_clock) >= clock


def images(site: Site) -> set[str]:
    """Of all pods of SCAR; those that are going do not count."""
    pods = [pod for component in COMPONENTS for pod in site.pods(component).values()]
    return {pod.spec.containers[0].image for pod in pods if not pod.metadata.deletion_timestamp}


def assert_whole(status: ClusterStatus) -> None:
    """The model lacks nothing but what the ledger says is lost."""
    assert status.loss == 0 or any(record.lost_blocks for record in status.failures)


def goes_on(site: Site, before: ClusterStatus) -> None:
    clock = before.clock + CLOCKS
    assert_whole(site.until(lambda status: training(status, clock), "training to go on", SECONDS))


def lives(status: ClusterStatus) -> dict[str, str]:
    """Of those who are not replaced as long as the second shard is not ready."""
    members = [one.member for one in (*status.shards.values(), *status.workers.values())]
    return {member.name: member.incarnation for member in members if member.name != "scar-ps-1"}


def test_a_member_of_a_newer_protocol_is_refused_and_stops_nothing(site: Site, tmp_path: Path) -> None:
    """The second shard comes back with one that the coordinators do not know. The first is not replaced
    before the second is ready.
    """
    before = site.until(lambda status: training(status, CLOCKS), "training", SECONDS)
    site.core.create_namespaced_config_map(site.namespace, NEWER)
    place = tmp_path / "place.yaml"
    place.write_text(json.dumps({"ps": {"pod": HAS_NEWER}}))
    site.install("upgrade", *TRAINING, "--values", str(place), wait=False, **SMALL)
    refused = f"speaks protocol {PROTOCOL + 1}, this recovery coordinator"
    deadline = time.monotonic() + SECONDS
    while refused not in log(site, "scar-ps-1"):
        assert time.monotonic() < deadline, log(site, "scar-ps-1")
        time.sleep(1)
    assert "Upgrade the recovery coordinator" in log(site, "scar-ps-1")
    clock = site.until(lambda status: status.clock > before.clock, "training", SECONDS).clock + CLOCKS
    after = site.until(
        lambda status: len(lives(status)) == 3 and min(status.clock, status.loss_clock) >= clock,
        "training to go on",
        SECONDS,
    )
    assert_whole(after)
    assert lives(after) == lives(before)


def log(site: Site, pod: str) -> str:
    """Empty while the pod is not there."""
    try:
        text: str = site.core.read_namespaced_pod_log(pod, site.namespace)
    except ApiException:
        return ""
    return text


def test_an_upgrade_replaces_all_and_training_goes_on(site: Site, next_image: str) -> None:
    before = site.until(lambda status: status.clock >= CLOCKS, "training", SECONDS)
    site.install("upgrade", *TRAINING, image__tag=next_image.rpartition(":")[2], **SMALL)
    assert images(site) == {next_image}
    assert "99.0.0" in site.python("scar-ps-0", "import scar.version; print(scar.version.__version__)")
    goes_on(site, before)


def test_an_upgrade_to_a_version_that_serves_no_older_one_is_held(site: Site, later_image: str) -> None:
    """Its coordinators are not ready, so those of the version before stay, and training goes on with those
    who are left. The upgrade is given up by a rollback.
    """
    site.helm("rollback", site.release, "1", "--wait", "--timeout", f"{READY_SECONDS}s")
    before = site.until(lambda status: training(status, CLOCKS), "training", SECONDS)
    tag = later_image.rpartition(":")[2]
    site.install("upgrade", *TRAINING, image__tag=tag, wait=False, **SMALL)
    held = "this version serves 99 and newer: it does not lead"
    deadline = time.monotonic() + SECONDS
    while not any(held in log(site, pod) for pod in site.pods("recovery")):
        assert time.monotonic() < deadline, {pod: log(site, pod) for pod in site.pods("recovery")}
        time.sleep(1)
    clock = before.clock + CLOCKS
    after = site.until(
        lambda status: (
            min(status.clock, status.loss_clock) >= clock and status.shards.keys() >= {"scar-ps-0"}
        ),
        "training to go on",
        SECONDS,
    )
    assert_whole(after)
    new = [pod for pod in site.pods("recovery").values() if pod.spec.containers[0].image == later_image]
    assert new, "no coordinator of the later version was started"
    assert not any(one.ready for pod in new for one in pod.status.container_statuses)


def test_a_rollback_brings_the_version_before_back(site: Site) -> None:
    """From an upgrade that is held as well."""
    before = site.until(lambda status: status.clock >= CLOCKS, "training", SECONDS)
    site.helm("rollback", site.release, "1", "--wait", "--timeout", f"{READY_SECONDS}s")
    assert images(site) == {site.image}
    goes_on(site, before)
