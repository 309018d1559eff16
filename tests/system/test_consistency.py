"""What BSP, SSP and ASP promise about clocks, seen from outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.framework.cluster import running
from tests.framework.history import History


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
    with running(tmp_path, shards=2, workers=2, consistency=consistency, staleness=staleness, slow={"0": 0.1}) as cluster:
        cluster.wait(lambda status: status.clock >= 15, "fifteen clocks")
        widest = spread(cluster.history())
        if consistency == "asp":
            assert widest > 5
        else:
            assert widest <= staleness + 1
        cluster.verify()
