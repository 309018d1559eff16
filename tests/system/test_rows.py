"""Tables with many rows a block that workers pull and push by rows, between real processes, with a shard
killed in the middle: equal to the same training without blocks and failures.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

import scar
from scar_admin.status import ClusterStatus
from scar_local import LocalCluster
from tests.framework.cluster import TIMEOUT

WORKERS = 2
LIMIT = 12
HOLD = 6  # the clock that nobody ends before a shard was killed
ROWS = 1000
WIDTH = 64
FEW, MANY = 5, 400  # one message; a stream or shared memory
LR = 0.5
TABLES = (
    scar.Table("sums", (ROWS, WIDTH), rule=scar.add(), blocks=scar.rows(64)),
    scar.Table("few", (ROWS, 2), rule=scar.sgd(lr=LR), blocks=scar.rows(7)),
    scar.Table("rated", (ROWS, WIDTH), rule=scar.adagrad(lr=LR, rowwise=True), blocks=scar.rows(64)),
)


def rows_of(rank: int, clock: int, count: int) -> np.ndarray:
    """In any order, some of them twice."""
    drawn = np.random.default_rng([rank, clock, count])
    return drawn.integers(0, ROWS, count)


def gradient(name: str, pulled: np.ndarray, rows: np.ndarray, clock: int) -> np.ndarray:
    """Eighths of whole numbers that depend on what was pulled: their sums are exact in float32. Where roots
    are not, nothing may hang on a sign.
    """
    moved = pulled if name != "rated" else np.zeros_like(pulled)
    return (np.sign(moved) + (rows[:, None] % 5) + clock % 3) / np.float32(8)


def train_alone() -> dict[str, np.ndarray]:
    """The same by numpy."""
    model = {table.name: np.zeros(table.shape, np.float32) for table in TABLES}
    squares = np.zeros((ROWS, 1), np.float32)
    for clock in range(LIMIT):
        total = {name: np.zeros_like(values) for name, values in model.items()}
        for rank in range(WORKERS):
            for name, count in (("sums", MANY), ("few", FEW), ("rated", MANY)):
                rows = rows_of(rank, clock, count)
                np.add.at(total[name], rows, gradient(name, model[name][rows], rows, clock))
        model["sums"] += total["sums"]
        model["few"] -= np.float32(LR) * total["few"]
        touched = np.unique(np.concatenate([rows_of(rank, clock, MANY) for rank in range(WORKERS)]))
        step = total["rated"][touched]
        squares[touched] += np.mean(step * step, axis=1, keepdims=True)
        model["rated"][touched] -= np.float32(LR) * step / (np.sqrt(squares[touched]) + np.float32(1e-8))
    return model


@pytest.mark.parametrize("options", [{"recovery": "sync-chain"}, {"sources": "workers"}], ids=str)
def test_training_by_rows_is_exact_though_a_shard_is_killed(tmp_path: Path, options: dict[str, str]) -> None:
    go = tmp_path / "go"
    exact = "sync-chain" in options.values()

    def train(worker: scar.Worker) -> None:
        for clock in worker.clocks(limit=LIMIT):
            asked = {
                name: rows_of(worker.rank, clock, count)
                for name, count in (("sums", MANY), ("few", FEW), ("rated", MANY))
            }
            pulled = worker.pull(list(asked), rows=asked)
            if not exact:  # what workers hold is whole tables
                worker.pull(list(asked))
            worker.push(
                {name: gradient(name, pulled[name], rows, clock) for name, rows in asked.items()}, rows=asked
            )
            while clock == HOLD and not go.exists():  # acknowledged, and to be sent again
                time.sleep(0.01)

    job = scar.Job("rows", TABLES, workers=WORKERS, **options)

    killed_in = [0]

    def kill_once(status: ClusterStatus) -> None:
        """Workers go on when all shards know: what is sent again is in time for its clock then."""
        chained = sum(shard.replicas for shard in status.shards.values()) == job.blocks
        if status.clock == HOLD and (chained or not exact) and not killed_in[0]:
            killed_in[0] = status.number
            cluster.kill("ps-1")
        known = {shard.epoch for shard in status.shards.values()} == {status.number}
        if known and status.number > killed_in[0] > 0:
            go.touch()

    with LocalCluster(tmp_path / "home", shards=3, respawn_delay=0.1) as cluster:
        result = cluster.train(job, train, timeout=2 * TIMEOUT, watch=kill_once)
    [record] = [one for one in result.ledger if any(name.startswith("ps-1@") for name in one.members)]
    expected = train_alone()
    np.testing.assert_array_equal(result.model["few"], expected["few"])
    np.testing.assert_array_equal(result.model["sums"], expected["sums"])
    if exact:
        assert record.lost_pushes == 0
        np.testing.assert_allclose(result.model["rated"], expected["rated"], rtol=1e-5)
