"""The examples of FTRL and of a rule of one's own, on little data of the same formats, with a shard killed in
the middle: its blocks come back, the loss falls, and what a rule promises holds of the model.
"""

from __future__ import annotations

import re
import time
from pathlib import Path

import numpy as np
import pytest

import scar
from scar import connect, load_job
from scar_admin.status import ClusterStatus
from scar_local import LocalCluster
from tests.framework.cluster import TIMEOUT
from tests.system.test_torch_examples import EXAMPLES, write_ratings

CLOCKS = 80


def write_newsgroups(folder: Path, posts: int = 200) -> None:
    """A post about religion has words of its own beside those of the topic."""
    draw = np.random.default_rng(3)
    words = ["god", "church", *(f"sacred{i}" for i in range(20)), *(f"plain{i}" for i in range(80))]
    indices, ends = [], [0]
    for post in range(posts):
        chosen = 22 + draw.choice(80, size=10, replace=False)
        if post % 2:
            chosen = np.concatenate(([post % 4 // 2], 2 + draw.choice(20, size=5, replace=False), chosen))
        indices.append(chosen)
        ends.append(ends[-1] + len(chosen))
    folder.mkdir()
    np.savez_compressed(
        folder / "20news-train-bow.npz",
        indptr=np.array(ends),
        indices=np.concatenate(indices),
        counts=np.ones(ends[-1], np.int64),
        vocab=np.frombuffer("\n".join(words).encode(), np.uint8),
    )


@pytest.mark.parametrize("name", ["ftrl", "nmf"])
def test_an_example_learns_though_a_shard_is_killed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    write_newsgroups(data / "20newsgroups")
    write_ratings(data / "movielens")
    text, edits = re.subn(r"CLOCKS = \d+", f"CLOCKS = {CLOCKS}", (EXAMPLES / f"{name}.py").read_text())
    assert edits == 1
    assert len(text.splitlines()) < 80
    file = tmp_path / f"{name}.py"
    file.write_text(text)
    monkeypatch.setenv("SCAR_DATA", str(data))
    with LocalCluster(tmp_path / "home", shards=4, respawn_delay=0.1) as cluster:
        job = load_job(str(file))[0]
        cluster.start_job(job)
        cluster.start_workers(file, 2)
        cluster.until(lambda status: status.clock >= 20, TIMEOUT, "training")
        cluster.kill("ps-1")
        assert set(cluster.wait(2 * TIMEOUT).values()) == {0}
        status = cluster.status()
        with connect(cluster.endpoints.recovery_address, timeout=TIMEOUT) as reader:
            model = {table.name: reader.pull(table.name) for table in job.tables}
    assert [failure.members for failure in status.failures]
    losses = [status.losses[clock] for clock in sorted(status.losses)]
    assert np.mean(losses[-5:]) < 0.6 * np.mean(losses[:5])
    for values in model.values():
        assert np.isfinite(values).all()
    if name == "nmf":
        assert all((values >= 0).all() for values in model.values())
    else:
        assert 10 < np.count_nonzero(model["w"]) < 120  # of the words' buckets; the others are exactly 0
        accuracy = [status.metrics[clock]["accuracy"] for clock in sorted(status.losses)]
        assert np.mean(accuracy[-5:]) > 0.9


def test_slots_of_a_rule_of_ones_own_come_back_with_their_blocks(tmp_path: Path) -> None:
    """A slot that counts steps: were it lost, its block would count from 0 again after the death."""
    limit, hold = 14, 10
    rule = scar.rule({"count": "count + g", "w": "count"}, slots=["count"])
    table = scar.Table("w", (24, 2), rule=rule)
    job = scar.Job("slots", [table], workers=1, checkpoint=scar.Checkpoint("full", 1.0, 2))
    go, killed = tmp_path / "go", []

    def train(worker: scar.Worker) -> None:
        for clock in worker.clocks(limit=limit):
            worker.push("w", np.ones((24, 2), np.float32))
            worker.report(1.0)
            while clock == hold and not go.exists():
                time.sleep(0.01)

    with scar.LocalCluster(tmp_path / "home", shards=3, respawn_delay=0.1) as cluster:

        def watch(status: ClusterStatus) -> None:
            saved = status.checkpoint.clock if status.checkpoint else 0
            if status.clock == hold and saved >= hold - 4 and not killed:
                killed.append(cluster.kill("ps-1"))
            if status.failures and status.failures[0].epoch:
                go.touch()

        result = cluster.train(job, train, timeout=TIMEOUT, watch=watch)
    (failure,) = result.ledger
    counts = result.model["w"]
    back = (counts < limit).all(axis=1)  # what the checkpoint lacked is lost, and said to be
    assert np.count_nonzero(back) <= failure.lost_blocks
    assert failure.lost_blocks > 0
    assert counts.min() >= limit - (hold - failure.clock) - 1 > limit - hold + 1
