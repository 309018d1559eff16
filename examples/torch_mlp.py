"""A PyTorch MLP on MNIST, or on the digits that come with SCAR, with AdamW on the shards.

examples/plain/mlp.py is what it was before: docs/torch.md shows the five lines that differ. It needs
scar-ps[torch].

scar train examples/torch_mlp.py --workers 2
"""

import numpy as np
import torch
from torch import nn

import scar.torch
from scar import datasets

SEED = 0
BATCH = 64
STEPS = 300

torch.set_num_threads(1)
torch.manual_seed(SEED)
model = nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
worker, optimizer = scar.torch.initialize(model, optimizer, shards=4, workers=2)

data = datasets.load()
images, labels = torch.tensor(data.images).float() / 255, torch.tensor(data.labels)
train_size = len(labels) * 5 // 6
for step in worker.clocks(limit=STEPS):
    batch = np.random.default_rng([SEED, step]).integers(train_size, size=BATCH)[worker.data_slice(BATCH)]
    loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    worker.report(loss.item() / worker.world_size)

with torch.no_grad():
    hits = model(images[train_size:]).argmax(1) == labels[train_size:]
print(f"accuracy on digits that were held out: {hits.double().mean():.3f}")
