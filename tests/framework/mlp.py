"""A training file of PyTorch: a small MLP on data made by a seed, by AdamW.

``SCAR_TEST_GO``: a file that has to exist before clock ``HOLD`` is worked on, so that a test can break
something before. ``train_alone`` is the same script without SCAR.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import torch
from torch import nn

import scar
import scar.torch

EXAMPLES = 240
CLOCKS = 240
HOLD = 40  # clock
GO_SECONDS = 300.0  # for the test to come that far


def build() -> nn.Module:
    torch.set_num_threads(1)  # more of them spin on a busy machine
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 3))


def make_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=0.02, weight_decay=2.0)


def examples() -> tuple[torch.Tensor, torch.Tensor]:
    """Classes by a plane each, every tenth at random."""
    draw = torch.Generator().manual_seed(2)
    x = torch.randn(EXAMPLES, 8, generator=draw)
    y = (x @ torch.randn(8, 3, generator=draw)).argmax(dim=1)
    y[::10] = torch.randint(3, (EXAMPLES // 10,), generator=draw)
    return x, y


def train_alone(model: nn.Module) -> None:
    x, y = examples()
    optimizer = make_optimizer(model)
    for _ in range(CLOCKS):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def train(worker: scar.Worker) -> None:
    model = build()
    x, y = examples()
    optimizer = scar.torch.Optimizer(worker, model)
    for clock in worker.clocks(limit=CLOCKS):
        if clock == HOLD:
            wait_for(Path(os.environ["SCAR_TEST_GO"]))
        part = worker.data_slice(EXAMPLES)
        loss = nn.functional.cross_entropy(model(x[part]), y[part])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        worker.report(loss.item() / worker.world_size)


def wait_for(file: Path) -> None:
    deadline = time.monotonic() + GO_SECONDS
    while not file.exists():
        assert time.monotonic() < deadline, f"{file} has not come"
        time.sleep(0.05)


declared = build()
job = scar.Job("mlp", scar.torch.tables(declared, make_optimizer(declared)), shards=2, workers=2)
