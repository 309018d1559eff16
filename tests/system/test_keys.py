"""Tables whose rows are given to keys, between real processes, with a shard killed in the middle."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

import scar
from scar.keyed_rows import draw_rows, mix_keys, row_seed
from scar_admin.status import ClusterStatus
from scar_cli.keyed_tables import keyed_rows
from scar_local import LocalCluster
from tests.framework.cluster import TIMEOUT

WORKERS = 2
LIMIT = 12
HOLD = 6  # the clock that nobody ends before a shard was killed
LAST_NEW = HOLD - 1  # in later clocks no key is pushed that was not pushed before
UNIVERSE = np.random.default_rng(7).integers(-(2**63), 2**63 - 1, 3000)
MANY = 400
WIDTH = 16
LR = 0.5
TABLES = (
    scar.Table("few", 4, rule=scar.add()),
    scar.Table(
        "clicks",
        keys="int64",
        dim=WIDTH,
        capacity=20_000,
        rule=scar.sgd(lr=LR),
        init=scar.constant(0.25),
    ),
)


def keys_of(rank: int, clock: int) -> np.ndarray:
    """In any order, some of them twice."""
    upto = len(UNIVERSE) * (min(clock, LAST_NEW) + 1) // (LAST_NEW + 1)
    return np.random.default_rng([rank, clock]).choice(UNIVERSE[:upto], MANY)


def gradient(pulled: np.ndarray, keys: np.ndarray, clock: int) -> np.ndarray:
    """Eighths of whole numbers that depend on what was pulled: their sums are exact in float32."""
    return (np.sign(pulled) + (keys[:, None] % 5) + clock % 3).astype(np.float32) / np.float32(8)


def train_alone() -> dict[int, np.ndarray]:
    """The same by a dict."""
    model: dict[int, np.ndarray] = {}
    x0 = np.full(WIDTH, 0.25, np.float32)
    for clock in range(LIMIT):
        total: dict[int, np.ndarray] = {}
        for rank in range(WORKERS):
            keys = keys_of(rank, clock)
            pulled = np.stack([model.get(key, x0) for key in keys.tolist()])
            for key, step in zip(keys.tolist(), gradient(pulled, keys, clock), strict=True):
                total[key] = total.get(key, np.float32(0)) + step
        for key, step in total.items():
            model[key] = model.get(key, x0) - np.float32(LR) * step
    return model


@pytest.mark.parametrize("options", [{"recovery": "sync-chain"}, {}], ids=str)
def test_training_by_keys_heals_when_a_shard_is_killed(tmp_path: Path, options: dict[str, str]) -> None:
    """By replicas to the last bit. From a checkpoint that holds nothing yet, every row of the dead shard
    begins again as it began: what is done to it afterwards is done to x(0).
    """
    go = tmp_path / "go"
    exact = bool(options)

    def train(worker: scar.Worker) -> None:
        for clock in worker.clocks(limit=LIMIT):
            keys = keys_of(worker.rank, clock)
            pulled = worker.pull("clicks", rows=keys)
            worker.push("clicks", gradient(pulled, keys, clock), rows=keys)
            while clock == HOLD and not go.exists():
                time.sleep(0.01)

    checkpoint = scar.Checkpoint(fraction=1.0, period=1000)  # no round before the end
    job = scar.Job("keys", TABLES, workers=WORKERS, checkpoint=checkpoint, **options)
    killed_in = [0]
    seen: list[dict[str, int]] = []

    def kill_once(status: ClusterStatus) -> None:
        seen.extend(keyed_rows(status).values())
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
    found = result.model["clicks"]
    expected = train_alone()
    if exact:
        assert record.lost_pushes == 0
        assert found.keys.tolist() == sorted(expected)
        np.testing.assert_array_equal(found.values, np.stack([expected[key] for key in sorted(expected)]))
    else:
        assert record.lost_pushes > 0
        assert set(found.keys.tolist()) <= set(expected)
        same = [
            np.array_equal(row, expected[key])
            for key, row in zip(found.keys.tolist(), found.values, strict=True)
        ]
        assert 0.3 < np.mean(same) < 1  # those of the survivors
    assert seen[-1]["rows"] == len(found.keys)
    assert seen[-1]["created"] > 0


def test_a_job_goes_on_from_its_checkpoint_and_readers_know_no_other_keys(tmp_path: Path) -> None:
    """After all processes have ended: rows that were saved are there, others begin by seed, table and key."""
    init = scar.normal(0.0, 0.5)
    table = scar.Table("clicks", keys="int64", dim=3, capacity=500, rule=scar.sgd(lr=1.0), init=init)
    keys = np.array([2**62, -5, 7])
    new = np.array([123])
    pulled: dict[str, np.ndarray] = {}
    home = tmp_path / "home"

    def train(worker: scar.Worker) -> None:
        for clock in worker.clocks(limit=3):
            worker.push("clicks", np.full((3, 3), clock + 1.0), rows=keys)

    job = scar.Job("resumed", [table], seed=5)
    with LocalCluster(home, shards=2) as cluster:
        first = cluster.train(job, train, timeout=TIMEOUT)
        with scar.connect(cluster.endpoints.recovery_address) as reader:
            pulled["known"] = reader.pull("clicks", rows=[7, 2**62, 7])
            pulled["unknown"] = reader.pull("clicks", rows=new)
            pulled["none"] = reader.pull("clicks", rows=[])
            snapshot = reader.snapshot()
    x0 = draw_rows(init, row_seed(5, "clicks"), mix_keys(keys), 3, np.dtype("float32")).reshape(3, 3)
    trained = ((x0 - np.float32(1)) - np.float32(2)) - np.float32(3)
    np.testing.assert_array_equal(pulled["known"], trained[[2, 0, 2]])
    np.testing.assert_array_equal(pulled["unknown"], np.zeros((1, 3)))
    assert pulled["none"].shape == (0, 3)
    np.testing.assert_array_equal(snapshot.tables["clicks"].values, first.model["clicks"].values)
    np.testing.assert_array_equal(first.model["clicks"].keys, np.sort(keys))

    def go_on(worker: scar.Worker) -> None:
        for _ in worker.clocks(limit=4):
            worker.push("clicks", np.ones((2, 3)), rows=[7, 123])

    with LocalCluster(home, shards=2) as cluster:
        second = cluster.train(job, go_on, timeout=TIMEOUT, resume=True)
    values = dict(zip(second.model["clicks"].keys.tolist(), second.model["clicks"].values, strict=True))
    np.testing.assert_array_equal(values[-5], trained[1])
    np.testing.assert_array_equal(values[7], trained[2] - np.float32(1))
    begun = draw_rows(init, row_seed(5, "clicks"), mix_keys(new), 3, np.dtype("float32"))
    np.testing.assert_array_equal(values[123], begun - np.float32(1))
