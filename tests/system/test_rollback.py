"""A loss that is no number takes everything back to what was saved before it, and the job goes on."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import scar
from scar_local import LocalCluster
from tests.framework import diverging
from tests.framework.cluster import TIMEOUT

LIMIT, POISON = 120, 40
WORKERS = ("worker-0", "worker-1")


class TrainedJob(NamedTuple):
    """``said``: lines of each worker; ``failures``: the ledger."""

    said: dict[str, list[str]]
    failures: list[Any]

    def last_words(self) -> dict[str, str]:
        """Of each worker, but for its loss."""
        return {name: " ".join(lines[-1].split()[:2]) for name, lines in self.said.items()}

    def losses(self, worker: str = "worker-0") -> dict[int, float]:
        lines = [line.split() for line in self.said[worker] if line.startswith("clock")]
        return {int(clock): float(loss) for _, clock, _, loss in lines}


def train(folder: Path, kill_at: int = 0, job: Any = None, **settings: str) -> TrainedJob:
    environment = {"SCAR_TEST_FOLDER": str(folder), "SCAR_TEST_LIMIT": str(LIMIT), **settings}
    with LocalCluster(folder / "cluster", shards=3, environment=environment) as cluster:
        cluster.start_job(job or diverging.make_job())
        cluster.start_workers(diverging.__file__, 2)
        if kill_at:
            wait_for_clock(folder / "worker-0.txt", kill_at)
            cluster.kill("ps-1")
        assert cluster.wait(TIMEOUT) == dict.fromkeys(WORKERS, 0)
        failures = list(cluster.status().failures)
    return TrainedJob({name: (folder / f"{name}.txt").read_text().splitlines() for name in WORKERS}, failures)


def wait_for_clock(file: Path, clock: int) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not file.exists() or f"clock {clock} " not in file.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[int, float]:
    """Losses by clock of the same job without a poisoned batch."""
    trained = train(tmp_path_factory.mktemp("undisturbed"))
    assert trained.failures == []
    return trained.losses()


@pytest.mark.parametrize("gradient", ["1e30", "nan"])
def test_one_poisoned_batch_costs_some_steps_and_not_the_job(
    tmp_path: Path, gradient: str, undisturbed: dict[int, float]
) -> None:
    trained = train(tmp_path, SCAR_TEST_POISON=str(POISON), SCAR_TEST_GRADIENT=gradient)
    assert trained.last_words() == dict.fromkeys(WORKERS, f"ended {LIMIT}")
    (record,) = trained.failures
    assert (record.strategy, list(record.members), record.lost_blocks) == ("rollback", [], 0)
    assert "says worker-" in record.rollback
    bad = (
        POISON if gradient == "nan" else POISON + 1
    )  # the push itself is left out, or spoils what is pulled next
    assert f"the loss of clock {bad} is" in record.rollback
    assert record.restored_clock < bad <= record.clock <= bad + 1
    assert sum(record.sources.values()) == record.total_blocks == diverging.WIDTH
    losses = trained.losses()
    assert bad + 1 not in losses, "nobody computes with what is void"
    after = [loss for clock, loss in sorted(losses.items()) if clock > bad]
    assert all(map(math.isfinite, after))
    assert after[0] == pytest.approx(losses[record.restored_clock], rel=0.5)
    assert after[-1] < after[0] / 10
    first = min(clock for clock in losses if clock > bad)
    cost = first - int(record.restored_clock) + diverging.PERIOD  # blocks are up to so much older
    assert after[-1] <= undisturbed[LIMIT - 1 - cost], "it is behind by these clocks at most"


def test_a_shard_dies_at_the_same_time(tmp_path: Path) -> None:
    trained = train(tmp_path, kill_at=POISON, SCAR_TEST_POISON=str(POISON))
    assert trained.last_words() == dict.fromkeys(WORKERS, f"ended {LIMIT}")
    assert sum(bool(record.rollback) for record in trained.failures) == 1
    assert "ps-1" in {key.partition("@")[0] for record in trained.failures for key in record.members}
    after = [loss for clock, loss in trained.losses().items() if clock > POISON + 1]
    assert all(map(math.isfinite, after))
    assert after[-1] < after[0] / 10


@pytest.mark.parametrize(
    "options",
    [
        {"sources": "workers"},
        {"recovery": "sync-chain"},
        {"recovery": "full", "checkpoint": scar.Checkpoint("full", period=4, keep=8)},
        {"consistency": "ssp", "staleness": 1},
    ],
    ids=["workers", "sync-chain", "full", "ssp"],
)
def test_whatever_the_job_does_about_failures(tmp_path: Path, options: dict[str, Any]) -> None:
    trained = train(tmp_path, job=diverging.make_job(**options), SCAR_TEST_POISON=str(POISON))
    assert trained.last_words() == dict.fromkeys(WORKERS, f"ended {LIMIT}")
    assert [bool(record.rollback) for record in trained.failures] == [True]
    after = [loss for clock, loss in trained.losses().items() if clock > trained.failures[0].clock]
    assert all(map(math.isfinite, after))
    assert after[-1] < after[0] / 10


def test_a_job_that_diverges_again_and_again_ends(tmp_path: Path) -> None:
    trained = train(tmp_path, SCAR_TEST_POISON=str(POISON), SCAR_TEST_ALWAYS="1")
    assert len(trained.failures) == 3
    for lines in trained.said.values():
        assert "the job has gone back 3 times in 1000 clocks, and diverges again" in lines[-2]
