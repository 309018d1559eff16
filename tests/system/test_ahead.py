"""Pulls for the next clock, between real processes, with a shard killed in the middle."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

import scar
from scar_admin.status import ClusterStatus
from scar_local import LocalCluster
from tests.framework.cluster import TIMEOUT
from tests.unit.test_torch_embeddings import build

WORKERS = 2
LIMIT = 16
HOLD = 6  # the clock that nobody ends before a shard was killed


@pytest.mark.parametrize("staleness", [0, 1])
def test_they_have_what_is_promised_for_that_clock(tmp_path: Path, staleness: int) -> None:
    """Under BSP all of the clocks before it and nothing else; under SSP at least what it may not lack."""
    go = tmp_path / "go"

    def train(worker: scar.Worker) -> None:
        coming = None
        for clock in worker.clocks(limit=LIMIT):
            if coming is not None and clock != HOLD + 1:  # where a push may come late
                counted = coming.result()
                assert (counted >= WORKERS * max(0, clock - staleness)).all(), (clock, counted.min())
                assert staleness or (counted == WORKERS * clock).all(), (clock, counted.max())
            coming = worker.pull_async("count", ahead=1)
            worker.push("count", np.ones((40, 3), np.float32))
            while clock == HOLD and not go.exists():
                time.sleep(0.01)

    def kill_once(status: ClusterStatus) -> None:
        chained = sum(shard.replicas for shard in status.shards.values()) == job.blocks
        if status.clock == HOLD and chained and not go.exists():
            cluster.kill("ps-1")
            go.touch()

    tables = [scar.Table("count", (40, 3), rule=scar.add())]
    consistency = "ssp" if staleness else "bsp"
    job = scar.Job(
        "ahead", tables, workers=WORKERS, recovery="sync-chain", consistency=consistency, staleness=staleness
    )
    with LocalCluster(tmp_path / "home", shards=3, respawn_delay=0.1) as cluster:
        result = cluster.train(job, train, timeout=2 * TIMEOUT, watch=kill_once)
    assert [one for one in result.ledger if any(name.startswith("ps-1@") for name in one.members)]
    assert (result.model["count"] == WORKERS * LIMIT).all()


@pytest.mark.timeout(600)  # two workers import torch, on whatever else this machine does
def test_a_model_trains_by_rows_that_came_ahead_though_a_shard_is_killed(tmp_path: Path) -> None:
    import torch

    import scar.torch

    def train(worker: scar.Worker) -> None:
        import torch

        import scar.torch
        from tests.unit.test_torch_embeddings import batch, build, take_step

        torch.set_num_threads(1)
        model = build(scar.torch, worker.rank)
        optimizer = scar.torch.Optimizer(worker, model)
        loader = [batch(step % 4) for step in range(120)]
        batches = scar.torch.prefetch(loader, optimizer)
        for _, examples in zip(worker.clocks(limit=len(loader)), batches, strict=False):
            take_step(model, optimizer, examples)

    def kill_once(status: ClusterStatus) -> None:
        if (status.clock or 0) >= 20 and not status.failures and not killed:
            cluster.kill("ps-1")
            killed.append("ps-1")

    killed: list[str] = []
    declared = build(scar.torch)
    made = scar.torch.tables(declared, torch.optim.Adagrad(declared.parameters(), lr=0.2))
    job = scar.Job("prefetched", made, workers=WORKERS, consistency="ssp", staleness=1)
    with LocalCluster(tmp_path / "home", shards=2, respawn_delay=0.1) as cluster:
        result = cluster.train(job, train, timeout=4 * TIMEOUT, watch=kill_once)
        trained = build(torch.nn, 5)
        with scar.connect(cluster.endpoints.recovery_address) as reader:
            scar.torch.load(trained, reader)
    assert result.ledger
    assert mean_loss(trained) < mean_loss(build(torch.nn)) / 2


def mean_loss(model: object) -> float:
    from torch import nn

    from tests.unit.test_torch_embeddings import batch

    losses = [nn.functional.cross_entropy(model(user, words), y) for user, words, y in map(batch, range(4))]  # type: ignore[operator]
    return float(sum(losses).detach()) / len(losses)
