"""Random schedules of faults, each drawn from a seed; every oracle after each group of faults.

``make chaos SEED=n`` plays one again. ``SCAR_CHAOS_SEEDS``: seeds to play, with commas.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.framework.cluster import running
from tests.framework.faults import drawn, play_all

SEEDS = [int(seed) for seed in os.environ.get("SCAR_CHAOS_SEEDS", "4,6,12").split(",")]
CONSISTENCY = ({"consistency": "bsp"}, {"consistency": "ssp", "staleness": 1}, {"consistency": "asp"})


@pytest.mark.parametrize("seed", SEEDS)
def test_schedule(tmp_path: Path, seed: int) -> None:
    draw = random.Random(-seed)
    shards, workers, consistency = draw.choice((2, 3)), draw.choice((1, 2)), draw.choice(CONSISTENCY)
    faults = drawn(seed, [f"ps-{n}" for n in range(shards)], [f"worker-{n}" for n in range(workers)])
    try:
        with running(tmp_path, shards=shards, workers=workers, seed=seed, **consistency) as cluster:
            play_all(cluster, faults)
            assert set(cluster.finish().values()) == {0}
            cluster.check(cluster.values())
    except Exception as error:
        error.add_note(f"{shards} shards, {workers} workers, {consistency}: {'; '.join(map(str, faults))}")
        error.add_note(f"to play it again: make chaos SEED={seed}")
        raise
