"""Contract 9: same seed, BSP, no faults: the same bits, whatever the number of shards."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from scar_local import LocalCluster
from tests.framework import floats
from tests.framework.cluster import TIMEOUT


def final_bits(folder: Path, seed: int, shards: int) -> dict[str, bytes]:
    """Everything that each of two workers ended with, the loss of the last clock included."""
    options = {"seed": seed, "shards": shards, "workers": 2}
    folder.mkdir()
    environment = {"SCAR_TEST_JOB": json.dumps(options), "SCAR_TEST_HISTORY": str(folder)}
    with LocalCluster(folder / "cluster", shards=shards, environment=environment) as cluster:
        cluster.start_job(floats.make_job(**options))
        cluster.start_workers(floats.__file__, 2)
        assert cluster.wait(TIMEOUT) == {"worker-0": 0, "worker-1": 0}
    found = {}
    for path in sorted(folder.glob("rank-*.npz")):
        with np.load(path) as arrays:
            found |= {f"{path.stem}/{name}": arrays[name].tobytes() for name in arrays.files}
    return found


def test_same_seed_same_bits(tmp_path: Path) -> None:
    first = final_bits(tmp_path / "first", seed=5, shards=2)
    assert len(first) == 10
    assert final_bits(tmp_path / "second", seed=5, shards=2) == first
    assert final_bits(tmp_path / "three-shards", seed=5, shards=3) == first
