"""A worker dies by SIGKILL: what each worker-side strategy of seed 004 promises, while it is away and
afterwards.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scar_admin.status import ClusterStatus
from scar_local import LocalCluster
from tests.framework import kept
from tests.framework.cluster import TIMEOUT, Cluster, running

FULL: dict[str, Any] = {"checkpoint": {"selection": "full", "fraction": 1.0, "period": 10}}
AWAY = "worker-1"


@contextmanager
def without_a_worker(folder: Path, **options: Any) -> Iterator[Cluster]:
    """Three workers, of which one was killed and stays away; the epoch knows it."""
    with running(folder, shards=2, workers=3, **options) as cluster:
        cluster.wait(lambda status: bool(status.checkpoint and status.checkpoint.manifest), "a checkpoint")
        cluster.local.kill(AWAY, respawn=False)
        cluster.wait(
            lambda status: bool(status.epoch and len(status.epoch.workers) == 2), "an epoch without it"
        )
        yield cluster


def back(cluster: Cluster) -> None:
    """It returns; every oracle holds, and all end well."""
    cluster.local.restart(AWAY)
    cluster.verify()
    assert set(cluster.finish().values()) == {0}
    cluster.check(cluster.read_values())


def waits(status: ClusterStatus) -> bool:
    return bool(status.recovery and f"clocks wait for {AWAY}" in status.recovery.problem)


@pytest.mark.parametrize(
    "options", [{"worker_recovery": "ps"}, {"worker_recovery": "ckpt", **FULL}], ids=["ps", "ckpt"]
)
def test_clocks_wait_for_a_worker_that_has_a_seat(tmp_path: Path, options: dict[str, Any]) -> None:
    with without_a_worker(tmp_path, **options) as cluster:
        cluster.wait(waits, "the coordinator to say for whom it waits")
        assert cluster.read_epochs()[-1].ranks == ("worker-0", AWAY, "worker-2")
        stopped = cluster.status()
        time.sleep(1.0)  # about thirty clocks
        assert cluster.status().clock <= stopped.clock + 1, (
            "a clock closed without the worker that it waits for"
        )
        back(cluster)


@pytest.mark.parametrize(
    ("share", "ranks"), [("takeover", ("worker-0", "worker-2")), ("drop", ("worker-0", AWAY, "worker-2"))]
)
def test_nobody_waits_for_an_ignored_worker(tmp_path: Path, share: str, ranks: tuple[str, ...]) -> None:
    with without_a_worker(tmp_path, worker_recovery="ignr", share=share) as cluster:
        cluster.wait_clocks(5)
        assert cluster.read_epochs()[-1].ranks == ranks
        written = "the ledger, which is written beside the epoch"
        cluster.wait(lambda _status: bool(cluster.read_ledger()), written)
        (record,) = cluster.read_ledger()
        assert [member.partition("@")[0] for member in record.members] == [AWAY]
        assert (record.strategy, record.lost_blocks, record.lost_pushes, list(record.waiting)) == (
            "ignr",
            0,
            0,
            [],
        )
        back(cluster)


def test_ckpt_takes_everything_back_and_says_so(tmp_path: Path) -> None:
    with without_a_worker(tmp_path, worker_recovery="ckpt", **FULL) as cluster:
        written = "the ledger, which is written beside the epoch"
        cluster.wait(lambda _status: bool(cluster.read_ledger()), written)
        record = cluster.read_ledger()[0]
        assert record.strategy == "ckpt"
        assert [member.split("@")[0] for member in record.members] == [AWAY]
        repaired = next(epoch for epoch in cluster.read_epochs() if epoch.number == record.epoch)
        assert repaired.rollback
        assert sum(len(group.ids) for group in repaired.moved) == cluster.job.blocks
        back(cluster)


def final(folder: Path, kills: int, marks: str = "", **options: Any) -> dict[str, bytes]:
    """The model and the local states after a whole training in which ``kills`` workers die, one after the
    other. ``marks``: of which worker only one shard has the mark of a clock when it dies, see
    `tests/framework/kept.py`.
    """
    folder.mkdir()
    environment = {"SCAR_TEST_JOB": json.dumps(options), "SCAR_TEST_HISTORY": str(folder)}
    if marks:
        environment["SCAR_TEST_MARKS"] = marks
    with LocalCluster(folder / "cluster", shards=2, environment=environment) as cluster:
        cluster.start_job(kept.make_job(**options))
        cluster.start_workers(kept.__file__, 3)
        for number in range(kills):
            wait_for_clock(cluster, 8 + 15 * number)
            cluster.kill(f"worker-{number + 1}")
        (folder / "over").touch()
        assert set(cluster.wait(TIMEOUT).values()) == {0}
    assert not marks or (folder / "died").exists()
    with np.load(folder / "final.npz") as arrays:
        return {name: arrays[name].tobytes() for name in arrays.files}


def wait_for_clock(cluster: LocalCluster, clock: int) -> None:
    deadline = time.monotonic() + TIMEOUT
    while cluster.status().clock < clock:
        assert time.monotonic() < deadline, f"clock {clock} was not reached"
        time.sleep(0.02)


@pytest.mark.timeout(300)  # two whole trainings, on a busy machine
@pytest.mark.parametrize("recovery", ["ps", "ckpt"])
def test_no_step_is_lost_or_done_twice(tmp_path: Path, recovery: str) -> None:
    """The lost iteration is done again from the same values with the same random numbers: the same bits as
    without deaths.
    """
    undisturbed = final(tmp_path / "undisturbed", 0, worker_recovery=recovery)
    assert final(tmp_path / "killed", 2, worker_recovery=recovery) == undisturbed


@pytest.mark.timeout(300)
def test_a_worker_that_dies_between_two_marks_has_finished_its_clock(tmp_path: Path) -> None:
    """One shard closes the clock, and has the worker's state of the next step or the former one; what was
    pushed for the clock counts on both.
    """
    undisturbed = final(tmp_path / "undisturbed", 0, worker_recovery="ps")
    for shard in ("ps-0", "ps-1"):
        assert final(tmp_path / shard, 0, f"worker-1 12 {shard}", worker_recovery="ps") == undisturbed
