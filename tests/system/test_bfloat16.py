"""Pushes and pulls that travel as bfloat16, between real processes, with a shard killed in the middle."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

import scar
from scar.bfloat16 import round_to_bfloat16
from scar_admin.status import ClusterStatus
from scar_local import LocalCluster
from tests.framework.cluster import TIMEOUT

WORKERS = 2
LIMIT = 12
HOLD = 6  # the clock that nobody ends before a shard was killed
# one travels as a message, the other by a stream or shared memory; integers are not rounded
SHAPES = {"small": (12, 2), "large": (64, 4096)}
JOB = scar.Job(
    "bfloat16",
    [
        *(scar.Table(name, shape, rule=scar.add()) for name, shape in SHAPES.items()),
        scar.Table("counts", 8, dtype="int64", rule=scar.add()),
    ],
    workers=WORKERS,
    recovery="sync-chain",
)


def pushed(clock: int) -> dict[str, np.ndarray]:
    """Thirds of powers of two: each is rounded, and sums of those that were are exact in float32."""
    third = np.float32(2.0 ** (clock % 3) / 3)
    made = {name: np.full(shape, third, np.float32) for name, shape in SHAPES.items()}
    return {**made, "counts": np.full(8, clock)}


def test_the_sum_of_what_was_rounded_is_in_the_model_though_a_shard_is_killed(tmp_path: Path) -> None:
    go = tmp_path / "go"

    def train(worker: scar.Worker) -> None:
        for clock in worker.clocks(limit=LIMIT):
            worker.push(pushed(clock), bfloat16=["small", "large"])
            while clock == HOLD and not go.exists():  # acknowledged, and to be sent again
                time.sleep(0.01)

    def kill_once(status: ClusterStatus) -> None:
        chained = sum(shard.replicas for shard in status.shards.values()) == JOB.blocks
        if status.clock == HOLD and chained and not go.exists():
            cluster.kill("ps-1")
            go.touch()

    with LocalCluster(tmp_path / "home", shards=3, respawn_delay=0.1) as cluster:
        result = cluster.train(JOB, train, timeout=2 * TIMEOUT, watch=kill_once)
    [record] = [one for one in result.ledger if any(name.startswith("ps-1@") for name in one.members)]
    assert record.lost_pushes == 0
    for name in ("small", "large"):
        expected = WORKERS * sum(round_to_bfloat16(pushed(clock)[name]) for clock in range(LIMIT))
        assert not np.array_equal(expected, WORKERS * sum(pushed(clock)[name] for clock in range(LIMIT)))
        np.testing.assert_array_equal(result.model[name], expected)
    assert result.model["counts"].tolist() == [WORKERS * sum(range(LIMIT))] * 8


def test_pulls_are_rounded_and_are_no_source_of_what_a_killed_shard_had(tmp_path: Path) -> None:
    """Of two tables one is pulled rounded: a worker gives back the other alone."""
    go = tmp_path / "go"
    job = scar.Job(
        "rounded",
        [
            scar.Table(name, shape, rule=scar.add(), init=scar.constant(1 / 3))
            for name, shape in {**SHAPES, "exact": (40, 2)}.items()
        ],
        workers=1,
        sources="workers",
        checkpoint=scar.Checkpoint(fraction=0.01, period=10_000),
    )

    def train(worker: scar.Worker) -> None:
        short = ("small", "large")
        for clock in worker.clocks(limit=LIMIT):
            found = worker.pull([*short, "exact"], bfloat16=short)
            some = worker.pull("large", rows=[3, 7], bfloat16=["large"])
            want = np.float32(1 / 3)
            for _ in range(clock):
                want += np.float32(1)
            for values in (found["small"], found["large"], some) if clock <= HOLD else ():
                assert (values == round_to_bfloat16(np.full(values.shape, want, np.float32))).all()
            assert (found["exact"] == want).all(), "it lost nothing"
            while clock == HOLD and not go.exists():
                time.sleep(0.01)
            worker.push({name: np.ones_like(values) for name, values in found.items()})

    def kill_once(status: ClusterStatus) -> None:
        if status.clock == HOLD and not go.exists():
            cluster.kill("ps-1")
            go.touch()

    with LocalCluster(tmp_path / "home", shards=3, respawn_delay=0.1) as cluster:
        result = cluster.train(job, train, timeout=2 * TIMEOUT, watch=kill_once)
    [record] = [one for one in result.ledger if any(name.startswith("ps-1@") for name in one.members)]
    assert 0 < record.sources["worker"] < 40, "blocks of the exact table, and of no other"
    assert record.sources["worker"] + record.sources.get("initial", 0) + record.sources.get("object", 0) == (
        record.lost_blocks
    )
