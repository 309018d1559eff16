""" "Finished" means durable: shards killed afterwards lose nothing, and whoever dies on the way holds it
up and no more.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import scar
from scar_chaos.restore import restore_tables
from scar_local import LocalCluster
from scar_runtime.store import open_store
from tests.framework.cluster import TIMEOUT

TRAIN = """
import pathlib, time, numpy as np, scar
seldom = scar.Checkpoint("priority", 0.5, 1_000_000)
job = scar.Job("count", [scar.Table("w", (12, 2), rule=scar.add())], shards=3, workers=2, checkpoint=seldom)
def train(worker):
    for clock in worker.clocks(limit={limit}):
        while clock == {hold} and not pathlib.Path({go!r}).exists():
            time.sleep(0.01)
        worker.push("w", np.full((12, 2), 1 + clock, np.float32))
        worker.report(1 / (1 + clock))
"""
SHARDS = ("ps-0", "ps-1", "ps-2")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path / "home", shards=3, respawn_delay=0.1) as cluster:
        yield cluster


def train(cluster: LocalCluster, limit: int, resume: bool = False) -> scar.Job:
    """Nobody ends the last clock before :func:`ended`."""
    (cluster.directory / "go").unlink(missing_ok=True)
    file = cluster.directory / f"count-{limit}.py"
    file.write_text(TRAIN.format(limit=limit, hold=limit - 1, go=str(cluster.directory / "go")))
    job = scar.load_job(str(file))[0]
    cluster.start_job(job, resume)
    cluster.start_workers(file, 2)
    return job


def ended(cluster: LocalCluster) -> None:
    (cluster.directory / "go").touch()
    assert set(cluster.wait(TIMEOUT).values()) == {0}


def finished(cluster: LocalCluster) -> None:
    cluster.until(lambda status: status.finished is not None, TIMEOUT, "the job to be finished")


def expected(limit: int) -> np.ndarray:
    return np.full((12, 2), 2.0 * sum(range(1, limit + 1)), np.float32)


def served(cluster: LocalCluster) -> np.ndarray:
    with scar.connect(cluster.endpoints.recovery_address, timeout=TIMEOUT) as reader:
        return np.array(reader.pull("w"))


def saved(cluster: LocalCluster, job: scar.Job) -> np.ndarray:
    values = restore_tables(open_store(cluster.store_url).under(job.name), job)["w"]
    return np.repeat(values[:, np.newaxis], 2, axis=1)


def test_shards_killed_after_the_end_lose_nothing(cluster: LocalCluster) -> None:
    job = train(cluster, 9)
    ended(cluster)
    finished(cluster)
    record = cluster.status().finished
    assert record is not None
    assert (record.clock, record.loss) == (9, pytest.approx(2 / 9))
    np.testing.assert_array_equal(saved(cluster, job), expected(9))
    before = {member.incarnation for member in cluster.status().epoch.shards}  # type: ignore[union-attr]
    for name in SHARDS:
        cluster.kill(name)
    cluster.until(
        lambda status: (
            len(status.shards) == 3
            and not status.loading
            and not before & {shard.member.incarnation for shard in status.shards.values()}
        ),
        TIMEOUT,
        "three new shards",
    )
    np.testing.assert_array_equal(served(cluster), expected(9))
    assert cluster.status().finished == record
    train(cluster, 12, resume=True)
    ended(cluster)
    cluster.until(lambda status: status.finished not in (None, record), TIMEOUT, "the second end")
    np.testing.assert_array_equal(saved(cluster, job), expected(12))


@pytest.mark.parametrize(
    "victims", [("checkpoint-0",), ("recovery-0",), ("checkpoint-0", "recovery-0")], ids="+".join
)
def test_a_coordinator_that_dies_between_the_last_clock_and_the_end_only_delays_it(
    cluster: LocalCluster, victims: tuple[str, ...]
) -> None:
    job = train(cluster, 9)
    cluster.until(lambda status: bool(status.workers), TIMEOUT, "workers")
    cluster.pause("checkpoint-0")
    ended(cluster)
    assert cluster.status().finished is None  # nothing is saved, so nothing is finished
    for name in victims:
        cluster.kill(name)
    if "checkpoint-0" not in victims:
        cluster.resume("checkpoint-0")
    finished(cluster)
    np.testing.assert_array_equal(saved(cluster, job), expected(9))


def test_a_shard_that_dies_before_the_model_is_saved_is_no_reason_to_wait_for_ever(
    cluster: LocalCluster,
) -> None:
    train(cluster, 9)
    cluster.until(lambda status: bool(status.workers), TIMEOUT, "workers")
    cluster.pause("checkpoint-0")
    ended(cluster)
    cluster.kill("ps-1")
    cluster.resume("checkpoint-0")
    finished(cluster)
    record = cluster.status().finished
    assert record is not None
    late = [failure for failure in cluster.status().failures if record.number < failure.epoch <= record.epoch]
    assert len(late) == 1  # and the end of `scar train` says so
