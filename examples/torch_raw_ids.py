"""DeepFM on the ratings of MovieLens by raw ids: no mapping of users and movies to rows, in PyTorch.

A user or movie has a row on the shards from its first gradient on. It needs scar-ps[torch], and SCAR_DATA
names the folder with movielens/ (docs/datasets.md).

scar train examples/torch_raw_ids.py --workers 2 &
scar kill ps-1        # rows that were never saved begin again as they began
scar status           # how many rows keys have, and what became of others
"""

import os
import zipfile
from pathlib import Path

import numpy as np
import torch
from torch import nn

import scar
import scar.torch

BATCH = 512
CLOCKS = 1500
FACTORS = 16
MOVIE = 1 << 32  # so that no movie has the key of a user
data = Path(os.environ["SCAR_DATA"]) / "movielens" / "ml-latest-small-2016.zip"
with zipfile.ZipFile(data) as archive, archive.open("ml-latest-small/ratings.csv") as file:
    users, movies, stars = np.loadtxt(file, delimiter=",", skiprows=1, usecols=(0, 1, 2)).T
held_out = np.random.default_rng(0).random(len(stars)) < 0.1
fields = torch.from_numpy(np.stack((users, movies + MOVIE), axis=1)).long()
ratings = torch.from_numpy(stars).float()


class RawIdModel(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.tensor([3.5]))
        self.linear = scar.torch.KeyedEmbedding(20_000, 1, init=scar.zeros())
        self.factors = scar.torch.KeyedEmbedding(20_000, FACTORS, init=scar.normal(0, 0.1))
        self.deep = nn.Sequential(nn.Linear(2 * FACTORS, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        rows = self.factors(ids)
        pairs = (rows[:, 0] * rows[:, 1]).sum(1)
        return self.mean + self.linear(ids).sum((1, 2)) + pairs + self.deep(rows.flatten(1))[:, 0]


torch.manual_seed(0)
model = RawIdModel()
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
job = scar.Job("torch-raw-ids", scar.torch.tables(model, optimizer), shards=4, workers=2)


def train(worker: scar.Worker) -> None:
    torch.set_num_threads(1)
    seen = np.flatnonzero(~held_out)
    optimizer = scar.torch.Optimizer(worker, model)
    sampler = scar.BatchSampler(worker, len(seen), BATCH)
    for clock in worker.clocks(limit=CLOCKS):
        mine = seen[sampler.indices(clock)]
        loss = nn.functional.mse_loss(model(fields[mine]), ratings[mine])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        worker.report(loss.item() / worker.world_size)
    if worker.is_leader:
        with torch.no_grad():
            error = model(fields[held_out]) - ratings[held_out]
        print(f"root mean square error on ratings that were held out: {(error**2).mean().sqrt():.3f}")
