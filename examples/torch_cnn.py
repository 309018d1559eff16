"""A PyTorch CNN with BatchNorm on Fashion-MNIST: momentum and a cosine learning rate on the shards.

It needs scar-ps[torch], and SCAR_DATA names the folder with fashion-mnist/ (docs/datasets.md).

scar train examples/torch_cnn.py --workers 2 &
scar kill ps-1        # or worker-1: the training goes on
"""

import torch
from torch import nn

import scar
import scar.torch
from scar import paper_datasets

BATCH = 128
CLOCKS = 1400  # three epochs

torch.manual_seed(0)
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
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, CLOCKS)
job = scar.Job("torch-cnn", scar.torch.tables(model, optimizer, scheduler), shards=4, workers=2)


def train(worker: scar.Worker) -> None:
    torch.set_num_threads(1)
    data = paper_datasets.labelled("fashion-mnist")
    images, labels = torch.from_numpy(data.x), torch.from_numpy(data.y)
    optimizer = scar.torch.Optimizer(worker, model)
    sampler = scar.BatchSampler(worker, len(labels), BATCH)
    for clock in worker.clocks(limit=CLOCKS):
        mine = sampler.indices(clock)
        scores = model(images[mine])
        loss = nn.functional.cross_entropy(scores, labels[mine])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        worker.report(loss.item() / worker.world_size)
        hits = int((scores.argmax(1) == labels[mine]).sum())
        worker.log({"accuracy": hits / len(sampler.batch(clock))})
