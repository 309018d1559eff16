"""What BSP, SSP and ASP promise about clocks, seen from outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from scar_chaos.oracles.history import History
from tests.framework.cluster import running

# a shard counts a clock as finished before the worker hears of it, and writes down that it has opened the
# next one
UNTOLD = 1


def spread(past: History) -> int:
    """Largest lead of one worker, in finished clocks, at any moment."""
    finished: dict[str, int] = {}
    widest = 0
    for _, worker, clock in sorted(past.opened):
        finished[worker] = clock
        if len(finished) > 1:
            widest = max(widest, max(finished.values()) - min(finished.values()))
    return widest


@pytest.mark.parametrize(("consistency", "staleness"), [("bsp", 0), ("ssp", 2), ("asp", 0)])
def test_slow_worker(tmp_path: Path, consistency: str, staleness: int) -> None:
    """A slow worker holds the others back exactly as far as the consistency says, and nothing is lost."""
    with running(
        tmp_path, shards=2, workers=2, consistency=consistency, staleness=staleness, slow={"0": 0.1}
    ) as cluster:
        cluster.wait(lambda status: status.clock >= 15, "fifteen clocks")
        widest = spread(cluster.read_history())
        if consistency == "asp":
            assert widest > 5
        else:
            assert widest <= staleness + 1 + UNTOLD
        cluster.verify()


def test_worker_that_is_gone_holds_nobody_up(tmp_path: Path) -> None:
    """BSP: an epoch takes the dead out, the others' clock goes on, and the returned one is waited for
    again.
    """
    with running(tmp_path, shards=2, workers=2, consistency="bsp") as cluster:
        before = cluster.incarnations()
        cluster.local.kill("worker-0", respawn=False)
        cluster.wait(
            lambda status: bool(status.epoch and len(status.epoch.workers) == 1),
            "an epoch without the worker",
        )
        cluster.wait_clocks(5)
        cluster.local.restart("worker-0")
        cluster.wait_healed(before, ["worker-0"])
        cluster.verify()
        assert cluster.finish() == {"worker-0": 0, "worker-1": 0}
