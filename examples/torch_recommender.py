"""A factorisation machine with a deep part (DeepFM) on the ratings of MovieLens, in PyTorch.

Users and movies are rows of embeddings on the shards: a worker pulls and pushes those of its batch alone.
examples/plain/recommender.py is what it was before: docs/torch.md shows the five lines that differ. It needs
scar-ps[torch], and SCAR_DATA names the folder with movielens/ (docs/datasets.md).

scar train examples/torch_recommender.py --workers 2 &
scar kill ps-1        # or worker-1: the training goes on
"""

import numpy as np
import torch
from torch import nn

import scar.torch
from scar import paper_datasets

SEED = 0
BATCH = 512
STEPS = 1500
FACTORS = 16

torch.set_num_threads(1)
torch.manual_seed(SEED)
known = paper_datasets.ratings("movielens")
USERS, MOVIES = known.shape


class DeepFM(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.tensor([3.5]))
        self.linear = nn.Embedding(USERS + MOVIES, 1, sparse=True)
        self.factors = nn.Embedding(USERS + MOVIES, FACTORS, sparse=True)
        self.deep = nn.Sequential(nn.Linear(2 * FACTORS, 32), nn.ReLU(), nn.Linear(32, 1))
        nn.init.zeros_(self.linear.weight)
        nn.init.normal_(self.factors.weight, std=0.1)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        rows = self.factors(ids)
        pairs = (rows[:, 0] * rows[:, 1]).sum(1)
        return self.mean + self.linear(ids).sum((1, 2)) + pairs + self.deep(rows.flatten(1))[:, 0]


model = DeepFM()
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
worker, optimizer = scar.torch.initialize(model, optimizer, shards=4, workers=2)

fields = torch.from_numpy(np.stack((known.rows, USERS + known.columns), axis=1)).long()
ratings = torch.from_numpy(known.values)
held_out = np.random.default_rng(0).random(len(ratings)) < 0.1
seen = np.flatnonzero(~held_out)
for step in worker.clocks(limit=STEPS):
    batch = np.random.default_rng([SEED, step]).choice(seen, size=BATCH)[worker.data_slice(BATCH)]
    loss = nn.functional.mse_loss(model(fields[batch]), ratings[batch])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    worker.report(loss.item() / worker.world_size)

with torch.no_grad():
    error = model(fields[held_out]) - ratings[held_out]
print(f"root mean square error on ratings that were held out: {(error**2).mean().sqrt():.3f}")
