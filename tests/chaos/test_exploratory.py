"""Random schedules of faults, each drawn from a seed; every oracle at the end of each.

``make chaos SEED=n`` plays one again. ``SCAR_CHAOS_SEEDS``: seeds to play, with commas.
"""

from __future__ import annotations

import os
import random
from itertools import groupby
from pathlib import Path

import pytest

from tests.framework.cluster import Cluster, running
from tests.framework.faults import Fault, drawn, play

SEEDS = [int(seed) for seed in os.environ.get("SCAR_CHAOS_SEEDS", "1,2,3").split(",")]
CONSISTENCY = ({"consistency": "bsp"}, {"consistency": "ssp", "staleness": 1}, {"consistency": "asp"})


@pytest.mark.parametrize("seed", SEEDS)
def test_schedule(tmp_path: Path, seed: int) -> None:
    draw = random.Random(-seed)
    shards, workers, consistency = draw.choice((2, 3)), draw.choice((1, 2)), draw.choice(CONSISTENCY)
    faults = drawn(seed, [f"ps-{n}" for n in range(shards)], [f"worker-{n}" for n in range(workers)])
    try:
        with running(tmp_path, shards=shards, workers=workers, seed=seed, **consistency) as cluster:
            play_all(cluster, faults)
            cluster.verify()
            assert set(cluster.finish().values()) == {0}
            cluster.check(cluster.values())
    except Exception as error:
        error.add_note(f"{shards} shards, {workers} workers, {consistency}: {'; '.join(map(str, faults))}")
        error.add_note(f"to play it again: make chaos SEED={seed}")
        raise


def play_all(cluster: Cluster, faults: list[Fault]) -> None:
    """Faults of one clock at the same time; the next when the cluster has healed and the clock has come."""
    for _, together in groupby(faults, key=lambda fault: fault.clock):
        cluster.advance(2)
        play(cluster, list(together))
