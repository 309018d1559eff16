"""Schedules of the shards against torch's own schedulers, 100 steps; and what cannot be translated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from scar.errors import ConfigError
from tests.unit.torch_shards import Member, Shards

STEPS = 100

# by name: torch's scheduler, of torch.optim.lr_scheduler and an optimizer
CASES: dict[str, Callable[[Any, Any], Any]] = {
    "ConstantLR": lambda lr, optimizer: lr.ConstantLR(optimizer, 0.25, total_iters=30),
    "LinearLR": lambda lr, optimizer: lr.LinearLR(optimizer, 0.1, 0.9, total_iters=40),
    "StepLR": lambda lr, optimizer: lr.StepLR(optimizer, 7, 0.8),
    "MultiStepLR": lambda lr, optimizer: lr.MultiStepLR(optimizer, [5, 60, 60, 200], 0.5),
    "ExponentialLR": lambda lr, optimizer: lr.ExponentialLR(optimizer, 0.97),
    "CosineAnnealingLR": lambda lr, optimizer: lr.CosineAnnealingLR(optimizer, 90, eta_min=0.01),
    "warm-up and cosine": lambda lr, optimizer: lr.SequentialLR(
        optimizer, [lr.LinearLR(optimizer, 0.01, total_iters=10), lr.CosineAnnealingLR(optimizer, 90)], [10]
    ),
    "steps in sequence": lambda lr, optimizer: lr.SequentialLR(
        optimizer,
        [lr.MultiStepLR(optimizer, [5, 50], 0.5), lr.ExponentialLR(optimizer, 0.9), lr.StepLR(optimizer, 9)],
        [20, 40],
    ),
}


def build(seed: int = 0) -> Any:
    import torch
    from torch import nn

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1)).double()


def make_optimizer(model: Any) -> Any:
    import torch

    groups = [{"params": model[0].parameters()}, {"params": model[2].parameters(), "lr": 0.03}]
    return torch.optim.AdamW(groups, lr=0.1, weight_decay=0.1)


@pytest.mark.filterwarnings("ignore:The epoch parameter")  # of SequentialLR, from torch itself
@pytest.mark.parametrize("case", CASES)
def test_a_schedule_is_torchs_scheduler(case: str) -> None:
    import torch

    import scar.torch

    alone, model = build(), build(1)
    single = make_optimizer(alone)
    scheduler = CASES[case](torch.optim.lr_scheduler, single)
    shards = Shards(scar.Job("rates", scar.torch.tables(alone, single, scheduler)))
    optimizer = scar.torch.Optimizer(Member(shards, 0, 1), model)
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    for clock in range(STEPS):
        for table, group in (("0.weight", 0), ("2.bias", 1)):
            rate = shards.job.table(table).rule.at_clock(clock).parameters["lr"]
            assert rate == pytest.approx(single.param_groups[group]["lr"], rel=1e-9, abs=1e-12)
        single.zero_grad()
        (alone(x) ** 2).sum().backward()
        single.step()
        scheduler.step()
        optimizer.zero_grad()
        (model(x) ** 2).sum().backward()
        optimizer.step()
        shards.close_clock()
    optimizer.pull()
    for name, expected in alone.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], expected, rtol=1e-6, atol=1e-9)


def test_what_shards_have_no_schedule_for_is_said() -> None:
    import torch
    from torch.optim import lr_scheduler

    import scar.torch

    model = build()
    optimizer = make_optimizer(model)
    with pytest.raises(ConfigError, match="no schedule for LambdaLR"):
        scar.torch.tables(model, optimizer, lr_scheduler.LambdaLR(optimizer, lambda _: 1.0))
    with pytest.raises(ConfigError, match="of another optimizer"):
        scar.torch.tables(model, optimizer, lr_scheduler.StepLR(make_optimizer(model), 3))
    with pytest.raises(ConfigError, match="of another optimizer"):
        scar.torch.tables(model, scar.sgd(0.1), lr_scheduler.StepLR(optimizer, 3))
    used = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = lr_scheduler.StepLR(used, 3)
    used.step()
    scheduler.step()
    with pytest.raises(ConfigError, match="has taken 1 steps"):
        scar.torch.tables(model, used, scheduler)
