"""A cluster that grows and shrinks under training loses nothing (benchmarks/resize.py has large tables)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.resize import measure_resizes
from scar_local import LocalCluster
from scar_local.directory import default_directory
from tests.framework import healing
from tests.framework.cluster import TIMEOUT
from tests.framework.kill_series import find_miscounts, read_ends


def test_every_push_is_in_the_values_of_a_cluster_that_grew_and_shrank() -> None:
    grown, shrunk = measure_resizes(200_000, [2, 4, 1])
    assert (grown.shards, shrunk.shards) == ((2, 4), (4, 1))
    assert grown.moved > 0
    assert shrunk.moved > 0
    for one in (grown, shrunk):
        assert (one.wrong, one.failures) == (0, 0)


def test_scar_scale_resizes_a_cluster_that_trains(tmp_path: Path) -> None:
    options: dict[str, Any] = {"shards": 2, "workers": 2, "kinds": ["count"], "consistency": "bsp"}
    environment = {"SCAR_TEST_JOB": json.dumps(options), "SCAR_TEST_HISTORY": str(tmp_path)}
    with LocalCluster(tmp_path / default_directory(), shards=2, environment=environment) as cluster:
        cluster.start_job(healing.make_job(**options))
        cluster.start_workers(healing.__file__, 2)
        cluster.until(lambda status: status.clock > 2, TIMEOUT, "some clocks")
        grown = _scale(tmp_path, 5)
        assert (grown["before"], grown["shards"], _shards(cluster)) == (2, 5, {0, 1, 2, 3, 4})
        shrunk = _scale(tmp_path, 1)
        assert (shrunk["before"], shrunk["shards"], _shards(cluster)) == (5, 1, {0})
        assert min(grown["blocks"], shrunk["blocks"]) > 0
        cluster.until(lambda status: len(status.shards) == 1, TIMEOUT, "the others to be forgotten")
        _scale(tmp_path, 2)  # one of a name that has been there
        (tmp_path / "over").touch()
        assert cluster.wait(TIMEOUT) == {"worker-0": 0, "worker-1": 0}
        assert not cluster.status().failures
    assert find_miscounts(read_ends(tmp_path), ["count"]) == []


def _scale(folder: Path, shards: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "scar_cli", "scale", str(shards), "-o", "json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _shards(cluster: LocalCluster) -> set[int]:
    names = [process.name for process in cluster.processes() if process.component == "ps"]
    return {int(name.rpartition("-")[2]) for name in names}
