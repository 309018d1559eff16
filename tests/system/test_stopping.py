"""All workers end at the same clock, and the model of the best evaluation is kept bit for bit."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np

import scar
from scar.errors import ClockPassed
from scar_local import LocalCluster
from tests.framework import exact
from tests.framework.cluster import TIMEOUT
from tests.system.test_snapshots import recorded

ENDS_AT = (
    exact.BEST + exact.EVERY * exact.PATIENCE + 2
)  # it is heard one clock later, and asked for in that one


def train(folder: Path, kill_at: int = 0, **settings: str) -> dict[str, list[str]]:
    """What each worker wrote at its end."""
    environment = {"SCAR_TEST_HISTORY": str(folder), "SCAR_TEST_LIMIT": "150", **settings}
    with LocalCluster(folder / "cluster", shards=2, environment=environment) as cluster:
        cluster.start_job(exact.make_job())
        cluster.start_workers(exact.__file__, 2)
        if kill_at:
            late = suppress(ClockPassed)  # on a busy machine by a clock or two
            with scar.connect(cluster.endpoints.recovery_address, timeout=TIMEOUT) as reader, late:
                reader.snapshot(clock=kill_at)
            cluster.kill("worker-0")
        assert cluster.wait(TIMEOUT) == {"worker-0": 0, "worker-1": 0}
    lines = {path.stem: path.read_text().splitlines() for path in folder.glob("worker-*.txt")}
    return {name: [line for line in said if not line[0].isdecimal()] for name, said in lines.items()}


def read_best(best: Path) -> tuple[int, float]:
    """Clock and value of the model that was kept, once it is compared with what was pulled in that clock."""
    with np.load(best) as kept:
        clock, epoch = int(kept["scar.clock"]), int(kept["scar.epoch"])
        assert recorded(best.parent)[clock, epoch] == {exact.digest(kept)}
        return clock, float(kept["scar.value"])


def test_all_end_at_one_clock_and_the_best_model_is_kept(tmp_path: Path) -> None:
    ends = train(tmp_path, SCAR_TEST_BEST=str(tmp_path / "best.npz"))
    assert ends == {name: [f"ended {ENDS_AT}"] for name in ("worker-0", "worker-1")}
    assert read_best(tmp_path / "best.npz") == (exact.BEST, 0.0)


def test_the_same_when_the_worker_that_evaluates_dies_and_comes_back(tmp_path: Path) -> None:
    """A clock in which workers come or go may have no loss, and then its evaluation does not count."""
    ends = train(tmp_path, kill_at=8, SCAR_TEST_BEST=str(tmp_path / "best.npz"))
    (said,) = ends["worker-0"]
    assert ends["worker-1"] == [said]
    late = int(said.split()[1]) - ENDS_AT
    assert late in (0, exact.EVERY, 2 * exact.EVERY)
    clock, value = read_best(tmp_path / "best.npz")
    assert value == abs(clock - exact.BEST) <= exact.EVERY


def test_one_worker_without_a_number_ends_all_at_the_same_clock(tmp_path: Path) -> None:
    ends = train(tmp_path, SCAR_TEST_NAN="12")
    said = ["diverged 13 the loss of clock 12 is nan", "ended 13"]
    assert ends == {"worker-0": said, "worker-1": said}
