"""A CNN with BatchNorm on Fashion-MNIST in plain PyTorch: momentum and a cosine learning rate.

examples/torch_cnn.py is the same script on SCAR. It needs scar-ps[torch], and SCAR_DATA names the folder
with fashion-mnist/ (docs/datasets.md).

python examples/plain/cnn.py
"""

import numpy as np
import torch
from torch import nn

from scar import paper_datasets

SEED = 0
BATCH = 128
STEPS = 1400

torch.set_num_threads(1)
torch.manual_seed(SEED)
model = nn.Sequential(
    nn.Unflatten(1, (1, 28, 28)),
    nn.Conv2d(1, 16, 3, stride=2, padding=1),
    nn.BatchNorm2d(16),
    nn.ReLU(),
    nn.Conv2d(16, 32, 3, stride=2, padding=1),
    nn.BatchNorm2d(32),
    nn.ReLU(),
    nn.Flatten(),
    nn.Linear(32 * 7 * 7, 10),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)

data = paper_datasets.labelled("fashion-mnist")
images, labels = torch.from_numpy(data.x), torch.from_numpy(data.y)
train_size = len(labels) * 5 // 6
for step in range(STEPS):
    batch = np.random.default_rng([SEED, step]).integers(train_size, size=BATCH)
    loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()

model.eval()
with torch.no_grad():
    hits = model(images[train_size:]).argmax(1) == labels[train_size:]
print(f"accuracy on pictures that were held out: {hits.double().mean():.3f}")
