"""The cost that is shown of a real kill, next to what arithmetic says of the run without one."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import scar
from scar_admin.iteration_costs import measured_costs
from scar_local import LocalCluster
from tests.framework.cluster import TIMEOUT

BLOCKS = 40
TRAIN = """
import time

def train(worker):
    for clock in worker.clocks(limit=400):
        w = worker.pull("w")
        worker.push("w", 0.05 * (1 - w))
        worker.report(float(((1 - w) ** 2).sum()) / 2)
        time.sleep(0.02)
"""


def undisturbed(clock: int) -> float:
    """Two workers take a twentieth of the way each, together a tenth."""
    return float(BLOCKS * 0.9 ** (2 * clock))


def test_the_cost_of_a_kill_is_what_the_losses_say(tmp_path: Path) -> None:
    (tmp_path / "approach.py").write_text(TRAIN)
    table = scar.Table("w", (BLOCKS, 1), rule=scar.add())
    job = scar.Job("approach", [table], shards=2, workers=2, checkpoint=scar.Checkpoint("full", 1.0, 10_000))
    with LocalCluster(tmp_path / "cluster", shards=2) as cluster:
        cluster.start_job(job)
        cluster.start_workers(str(tmp_path / "approach.py"), 2)
        deadline = time.monotonic() + TIMEOUT
        killed = False
        while True:
            assert time.monotonic() < deadline, cluster.status().problems
            status = cluster.status()
            if not killed and status.clock >= 10:
                cluster.kill("ps-0")
                killed = True
            costs = measured_costs(status, status.failures)
            if costs and costs[1].at_most is not None:
                break
            time.sleep(0.05)
    (failure,) = status.failures
    clock = failure.clock
    before = {at: loss for at, loss in status.losses.items() if at < clock}
    assert before == {at: pytest.approx(undisturbed(at), rel=1e-3) for at in before}
    # half of the blocks went back to 0, where the loss of each is 1; from there they all shrink alike
    lost = failure.lost_blocks
    restored = lost + (BLOCKS - lost) * 0.9 ** (2 * clock)
    level = undisturbed(clock - 1)
    needed = next(clocks for clocks in range(1000) if restored * 0.9 ** (2 * clocks) <= level * (1 + 1e-6))
    assert abs(costs[1].at_most - (needed + 1)) <= 1, "from the clock before; the open clock counts or not"
