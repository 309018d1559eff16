"""One release from its installation to its end, in this order: train, break, judge, upgrade, uninstall,
install again.

What happens during chaos is judged by the same scene and the same checkers as in ``tests/system``; here the
scene is a pod.
"""

from __future__ import annotations

import json
import re
from contextlib import nullcontext
from typing import Any

import pytest

from scar_admin.status import ClusterStatus
from tests.e2e.site import READY_SECONDS, ROOT, Site, missing

if reason := missing():
    pytest.skip(reason, allow_module_level=True)
pytestmark = pytest.mark.timeout(900)

STEADY = str(ROOT / "tests" / "e2e" / "steady.py")
SHARDS = 4
KEPT = {"data-scar-minio-0", "scar-store-key"}  # the bucket outlives the release, and what signs it


def report(site: Site, seed: int) -> dict[str, Any]:
    found = site.core.read_namespaced_config_map(f"scar-chaos-report-{seed}", site.namespace)
    made: dict[str, Any] = json.loads(found.data["report.json"])
    return made


def steady(status: ClusterStatus, clock: int) -> bool:
    """The steady training is what runs, and has come that far. A release shows its former job until the
    next one begins.
    """
    return bool(status.job and status.job.name == "steady" and status.workers and status.clock >= clock)


def owners(status: ClusterStatus) -> int:
    """Shards that own blocks and serve all of them."""
    tables = {name: shard.tables for name, shard in status.shards.items() if shard.serving}
    return sum(
        any(t.blocks for t in parts) and not any(t.loading for t in parts) for parts in tables.values()
    )


def test_install_waits_until_all_is_ready(site: Site, record_property: Any) -> None:
    seconds = site.install(ps__replicas=str(SHARDS))
    record_property("install_seconds", round(seconds, 1))
    pods = site.pods()
    assert len([name for name in pods if name.startswith("scar-ps-")]) == SHARDS
    for pod in pods.values():
        assert {condition.type: condition.status for condition in pod.status.conditions}["Ready"] == "True"


@pytest.mark.parametrize("component", ["recovery", "detector", "checkpoint"])
def test_a_standby_is_on_another_node(site: Site, component: str) -> None:
    """Or the loss of one node takes both along."""
    ready = [
        node for node in site.core.list_node().items if not node.spec.unschedulable and not node.spec.taints
    ]
    where = {pod.spec.node_name for pod in site.pods(component).values()}
    assert len(where) == min(2, len(ready))


def test_a_file_trains_to_its_loss(site: Site) -> None:
    """No image was built for it."""
    said = site.run("train", str(ROOT / "examples" / "mlr.py"))
    found = re.search(r"finished job mlr: (\d+) clocks, loss ([\d.]+)", said)
    assert found, said
    assert 0 < float(found[2]) <= 0.6


@pytest.mark.parametrize(("kind", "seed"), [("delete", 11), ("kill", 12)])
def test_half_of_the_shards_die(site: Site, kind: str, seed: int) -> None:
    """By `kubectl delete --force`, and without any notice. Workers live on; ledger and survivors' values
    agree.
    """
    half = "+".join(f"ps-{number}" for number in range(SHARDS // 2))
    site.run("chaos", "--seed", str(seed), "--workers", "2", "--fault", f"{kind}:{half}", timeout=400)
    found = report(site, seed)
    assert found["passed"]
    assert found["worker_lives"] == {"scar-worker-0": 1, "scar-worker-1": 1}
    (group,) = found["groups"]
    assert group["violations"] == []
    assert (group["missing_blocks"], group["doubled_blocks"]) == (0, 0)
    assert group["throughput"] >= 0, "it was measured; without half of the shards no clock may begin"
    if kind == "kill":
        assert group["failures"] >= 1
        assert group["lost_blocks"] > 0
        assert 0 <= group["detect"] + group["recover"] < 30, "pods start on the same processors meanwhile"


@pytest.mark.parametrize(("level", "seed"), [("privileged", 13), ("restricted", 14)])
def test_a_shard_is_cut_off(site: Site, level: str, seed: int) -> None:
    """By a container that joins its pod, and where that is refused by a policy."""
    with site.privileged() if level == "privileged" else nullcontext():
        site.run("chaos", "--seed", str(seed), "--workers", "2", "--fault", "cut:ps-1", timeout=400)
    found = report(site, seed)
    assert found["passed"]
    (group,) = found["groups"]
    assert group["violations"] == []
    if level == "privileged":
        joined = site.pods("ps")["scar-ps-1"].spec.ephemeral_containers
        assert [one.name.startswith("cut-") for one in joined] == [True]
        assert group["failures"] == 1


def test_upgrade_moves_blocks_to_new_shards_while_training_goes_on(site: Site) -> None:
    with site.background("train", STEADY):
        before = site.until(lambda status: steady(status, 20), "training to begin")
        lives = {name: worker.member.incarnation for name, worker in before.workers.items()}
        site.install("upgrade", ps__replicas=str(SHARDS + 2))
        after = site.until(lambda status: owners(status) == SHARDS + 2, "all shards to own blocks")
        later = site.until(lambda status: steady(status, after.clock + 1), "training to go on")
    assert before.clock < after.clock < later.clock
    assert {name: worker.member.incarnation for name, worker in later.workers.items()} == lives
    assert len(later.failures) == len(before.failures)


def test_rollback_moves_them_back(site: Site) -> None:
    before = site.until(lambda status: steady(status, 1), "training")
    site.helm("rollback", site.release, "1", "--wait", "--timeout", f"{READY_SECONDS}s")
    after = site.until(
        lambda status: owners(status) == len(status.shards) == SHARDS, "the first shards to own all"
    )
    later = site.until(lambda status: steady(status, after.clock + 1), "training to go on")
    assert later.clock > before.clock
    assert len(later.failures) == len(before.failures)


def test_uninstall_leaves_nothing_but_the_bucket_and_a_new_release_resumes(site: Site) -> None:
    status = site.until(
        lambda status: bool(steady(status, 20) and status.checkpoint and status.checkpoint.clock > 20),
        "a checkpoint",
    )
    assert status.checkpoint is not None
    saved = status.checkpoint.clock
    site.helm("uninstall", site.release, "--wait", "--timeout", "120s")
    assert site.left() == KEPT
    site.install(ps__replicas=str(SHARDS))
    with site.background("train", STEADY, "--resume"):
        first = site.until(lambda status: steady(status, 1) and len(status.workers) == 2, "training to begin")
        assert first.clock >= saved
        site.until(lambda status: steady(status, first.clock + 1), "training to go on")
