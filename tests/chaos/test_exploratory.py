"""Random schedules of faults, each drawn from a seed, as `scar chaos` plays them; every oracle after each
group of faults.

``make chaos SEED=n`` plays one again.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from scar_chaos.core.schedule import FaultSpace, draw_schedule
from scar_chaos.targets.local import KINDS
from tests.framework.cluster import running

SEEDS = (4, 6, 12)


@pytest.mark.parametrize("seed", SEEDS)
def test_schedule(tmp_path: Path, seed: int) -> None:
    schedule = draw_schedule(seed, FaultSpace(KINDS))
    try:
        with running(tmp_path, local={"standby": schedule.standby}, **schedule.options) as cluster:
            cluster.play(*schedule.faults)
            assert set(cluster.finish().values()) == {0}
            cluster.check(cluster.read_values())
    except Exception as error:
        error.add_note(f"{schedule}\nto play it again: make chaos SEED={seed}")
        raise
