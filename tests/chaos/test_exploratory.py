"""Random schedules of faults, each drawn from a seed, as `scar chaos` plays them; every oracle after each group of faults.

``make chaos SEED=n`` plays one again.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from scar_chaos.local import KINDS
from scar_chaos.schedule import Room, drawn
from tests.framework.cluster import running

SEEDS = (4, 6, 12)


@pytest.mark.parametrize("seed", SEEDS)
def test_schedule(tmp_path: Path, seed: int) -> None:
    schedule = drawn(seed, Room(KINDS))
    try:
        with running(tmp_path, **schedule.options) as cluster:
            cluster.play(*schedule.faults)
            assert set(cluster.finish().values()) == {0}
            cluster.check(cluster.values())
    except Exception as error:
        error.add_note(f"{schedule}\nto play it again: make chaos SEED={seed}")
        raise
