"""The examples of PyTorch, on little data of the same formats, with a shard killed in the middle."""

from __future__ import annotations

import gzip
import re
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from scar import load_job
from scar_local import LocalCluster
from tests.framework.cluster import TIMEOUT

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CLOCKS = 60  # of the examples' hundreds
SIDE = 28


def write_images(folder: Path, count: int = 400) -> None:
    """Fashion-MNIST's files: each class is bright in rows of its own."""
    draw = np.random.default_rng(1)
    labels = draw.integers(10, size=count).astype(np.uint8)
    images = draw.integers(100, size=(count, SIDE, SIDE)).astype(np.uint8)
    for image, label in zip(images, labels, strict=True):
        image[2 * label : 2 * label + 4] += 120
    folder.mkdir()
    for name, array in (("images-idx3", images), ("labels-idx1", labels)):
        header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
        (folder / f"train-{name}-ubyte.gz").write_bytes(gzip.compress(header + array.tobytes()))


def write_ratings(folder: Path, users: int = 40, movies: int = 60) -> None:
    """MovieLens' file: a user likes the movies of the same parity."""
    draw = np.random.default_rng(2)
    lines = ["userId,movieId,rating,timestamp"]
    for user in range(users):
        for movie in draw.choice(movies, size=30, replace=False):
            lines.append(f"{user + 1},{movie + 1},{4.5 if (user + movie) % 2 else 1.5},0")
    folder.mkdir()
    with zipfile.ZipFile(folder / "ml-latest-small-2016.zip", "w") as archive:
        archive.writestr("ml-latest-small/ratings.csv", "\n".join(lines) + "\n")


@pytest.mark.timeout(600)  # workers import torch, on whatever else this machine does
@pytest.mark.parametrize("name", ["torch_cnn", "torch_mlp", "torch_raw_ids", "torch_recommender"])
def test_an_example_learns_though_a_shard_is_killed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    write_images(data / "fashion-mnist")
    write_ratings(data / "movielens")
    text = (EXAMPLES / f"{name}.py").read_text()
    assert len(text.splitlines()) < 80
    text, edits = re.subn(r"(CLOCKS|STEPS) = \d+", rf"\g<1> = {CLOCKS}", text)
    assert edits == 1
    file = tmp_path / f"{name}.py"
    file.write_text(text)
    monkeypatch.setenv("SCAR_DATA", str(data))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # more threads spin on a busy machine
    kill_and_learn(name, file, tmp_path)


@pytest.mark.timeout(600)
def test_local_steps_learn_though_a_shard_and_a_worker_are_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker that comes back goes on from the model of the others, with a new inner optimizer."""
    text = (EXAMPLES / "torch_gpt_diloco.py").read_text()
    assert len(text.splitlines()) < 80
    text, edits = re.subn(r"limit=\d+", "limit=16", text)
    assert edits == 1
    file = tmp_path / "gpt.py"
    file.write_text(text)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with LocalCluster(tmp_path / "home", shards=4, respawn_delay=0.1) as cluster:
        cluster.start_job(load_job(str(file))[0])
        cluster.start_workers(file, 4)
        cluster.until(lambda status: status.clock >= 4, 3 * TIMEOUT, "training")
        cluster.kill("ps-1")
        cluster.kill("worker-2")
        cluster.until(lambda status: status.clock >= 8, 3 * TIMEOUT, "training to go on")
        back = cluster.until(
            lambda status: len(status.workers) == 4 and status.workers["worker-2"].clock >= 9,
            3 * TIMEOUT,
            "the worker to come back",
        )
        dead = {member.partition("@")[0] for failure in back.failures for member in failure.members}
        assert dead == {"ps-1", "worker-2"}
        assert set(cluster.wait(3 * TIMEOUT).values()) == {0}
        losses = cluster.status().losses
    clocks = sorted(losses)
    assert losses[clocks[-1]] < 0.8 * losses[clocks[0]]


def kill_and_learn(name: str, file: Path, tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "home", shards=4, respawn_delay=0.1) as cluster:
        cluster.start_job(load_job(str(file))[0])
        cluster.start_workers(file, 2)
        cluster.until(lambda status: status.clock >= 5, 3 * TIMEOUT, "training")
        cluster.kill("ps-1")
        assert set(cluster.wait(3 * TIMEOUT).values()) == {0}
        losses = cluster.status().losses
        printed = (cluster.directory / "logs" / "worker-0.out").read_text()
    first, last = (
        np.mean([losses[clock] for clock in sorted(losses)[part]]) for part in (slice(5), slice(-5, None))
    )
    assert last < 0.8 * first
    if name == "torch_cnn":
        held_out = re.search(r"held out: ([0-9.]+)", printed)
        assert held_out is not None
        assert float(held_out[1]) > 0.5
