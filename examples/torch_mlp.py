"""A PyTorch MLP on MNIST, or on the digits that come with SCAR, with AdamW on the shards.

docs/torch.md shows what was changed to bring it here. It needs scar-ps[torch].

scar train examples/torch_mlp.py --workers 2
"""

import numpy as np
import torch
from torch import nn

import scar
import scar.torch
from scar import datasets

BATCH = 64

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
job = scar.Job("torch-mlp", scar.torch.tables(model, optimizer), shards=4, workers=2)


def train(worker: scar.Worker) -> None:
    data = datasets.load()
    optimizer = scar.torch.Optimizer(worker, model)
    for step in worker.clocks(limit=300):
        batch = np.random.default_rng(step).integers(len(data), size=BATCH)[worker.data_slice(BATCH)]
        images = torch.from_numpy(data.images[batch]).float() / 255
        loss = nn.functional.cross_entropy(model(images), torch.from_numpy(data.labels[batch]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        worker.report(loss.item() / worker.world_size)
