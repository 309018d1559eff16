"""A step of DeepFM with embeddings of 10^6 rows, on SCAR with two workers and in plain torch in one process.

The model of examples/torch_recommender.py on ids drawn at random; a step is one batch, which two workers
share. Plain torch steps the rows of its batch (``sparse=True``), or, as `nn.Embedding` does by itself, the
whole table.

    python -m benchmarks.deepfm --rows 1000000 --batch 512 --steps 200
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import scar
import scar.torch

FACTORS = 16
ROWS = int(os.environ.get("SCAR_BENCH_ROWS", "1000"))
BATCH = int(os.environ.get("SCAR_BENCH_BATCH", "512"))
STEPS = int(os.environ.get("SCAR_BENCH_STEPS", "10"))
WARM = 20  # steps that are not counted


class FactorisationMachine(nn.Module):  # type: ignore[misc]
    """``make``: of an embedding of so many rows and columns."""

    def __init__(self, rows: int, make: Callable[[int, int], nn.Module]) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.tensor([3.5]))
        self.linear = make(rows, 1)
        self.factors = make(rows, FACTORS)
        self.deep = nn.Sequential(nn.Linear(2 * FACTORS, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        rows = self.factors(ids)
        pairs = (rows[:, 0] * rows[:, 1]).sum(1)
        return self.mean + self.linear(ids).sum((1, 2)) + pairs + self.deep(rows.flatten(1))[:, 0]


def draw_batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids of two fields, and ratings."""
    draw = np.random.default_rng(step)
    ids = torch.from_numpy(draw.integers(ROWS, size=(BATCH, 2)))
    return ids, torch.from_numpy(draw.normal(3.5, 1, BATCH).astype(np.float32))


def train_plain(sparse: bool) -> float:
    """Median seconds of a step."""
    torch.manual_seed(0)
    model = FactorisationMachine(ROWS, lambda rows, width: nn.Embedding(rows, width, sparse=sparse))
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    times = []
    for step in range(STEPS + WARM):
        began = time.perf_counter()
        ids, ratings = draw_batch(step)
        loss = nn.functional.mse_loss(model(ids), ratings)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        times.append(time.perf_counter() - began)
    return statistics.median(times[WARM:])


def make_job() -> tuple[nn.Module, scar.Job]:
    torch.manual_seed(0)
    model = FactorisationMachine(ROWS, scar.torch.Embedding)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    tables = scar.torch.tables(model, optimizer)
    for table in tables:
        if table.name.startswith(("linear", "factors")):  # given arrays: too large for StartJob
            table.init = scar.normal(0, 0.1)
    return model, scar.Job("deepfm-step", tables, shards=2, workers=2)


def train(worker: scar.Worker) -> None:
    torch.set_num_threads(1)
    optimizer = scar.torch.Optimizer(worker, model)
    times = []
    for step in worker.clocks(limit=STEPS + WARM):
        began = time.perf_counter()
        ids, ratings = draw_batch(step)
        mine = worker.data_slice(BATCH)
        loss = nn.functional.mse_loss(model(ids[mine]), ratings[mine])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        worker.report(loss.item() / worker.world_size)
        times.append(began)
    if worker.rank == 0:
        np.save(os.environ["SCAR_BENCH_OUT"], np.diff(times)[WARM:])


def train_scar() -> float:
    """Median seconds from a step of a worker to its next one."""
    with tempfile.TemporaryDirectory(prefix="deepfm-") as home:
        out = Path(home) / "times.npy"
        settings = {name: os.environ[name] for name in os.environ if name.startswith("SCAR_BENCH")}
        settings["SCAR_BENCH_OUT"] = str(out)
        with scar.LocalCluster(Path(home) / "cluster", shards=2, environment=settings) as cluster:
            cluster.start_job(make_job()[1])
            cluster.start_workers(__file__, 2)
            cluster.wait(600.0)
        return float(np.median(np.load(out)))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    sizes = {
        "SCAR_BENCH_ROWS": options.rows,
        "SCAR_BENCH_BATCH": options.batch,
        "SCAR_BENCH_STEPS": options.steps,
    }
    if any(os.environ.get(name) != str(value) for name, value in sizes.items()):
        os.environ.update({name: str(value) for name, value in sizes.items()})
        os.execv(sys.executable, [sys.executable, "-m", "benchmarks.deepfm", *sys.argv[1:]])
    torch.set_num_threads(2)
    found: dict[str, float] = {"torch, rows": train_plain(True)}
    found["torch, whole tables"] = train_plain(False)
    found["SCAR, two workers"] = train_scar()
    for name, seconds in found.items():
        ratio = seconds / found["torch, rows"]
        sys.stdout.write(f"{name:>20} {1e3 * seconds:>8.2f} ms {ratio:>6.2f} x\n")
    return 0


if os.environ.get("SCAR_BENCH_OUT"):
    model: Any
    model, job = make_job()

if __name__ == "__main__":
    raise SystemExit(main())
