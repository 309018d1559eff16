"""The shards' update rules against torch's own optimizers, 100 steps on the same gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import scar
from scar import tables
from scar_ps.core.block_store import BlockStore
from scar_ps.core.update_rules import apply_push

STEPS = 100
SHAPE = (13, 7)
# largest difference, relative to the largest value
BOUNDS = {"float64": 1e-12, "float32": 2e-6}

# by name: the rule, and torch's optimizer with the same numbers, of torch.optim and the parameters
CASES: dict[str, tuple[scar.Rule, Callable[[Any, Any], Any]]] = {
    "SGD": (scar.sgd(0.1), lambda optim, x: optim.SGD(x, lr=0.1)),
    "SGD with decay": (scar.sgd(0.1, 0.02), lambda optim, x: optim.SGD(x, lr=0.1, weight_decay=0.02)),
    "momentum": (scar.momentum(0.05), lambda optim, x: optim.SGD(x, lr=0.05, momentum=0.9)),
    "Nesterov with decay": (
        scar.momentum(0.05, 0.8, nesterov=True, weight_decay=0.02),
        lambda optim, x: optim.SGD(x, lr=0.05, momentum=0.8, nesterov=True, weight_decay=0.02),
    ),
    "Adagrad": (scar.adagrad(0.1, 1e-10), lambda optim, x: optim.Adagrad(x, lr=0.1)),
    "Adagrad with decay": (
        scar.adagrad(0.1, 1e-6, 0.02),
        lambda optim, x: optim.Adagrad(x, lr=0.1, eps=1e-6, weight_decay=0.02),
    ),
    "Adam": (scar.adam(), lambda optim, x: optim.Adam(x)),
    "Adam with decay": (
        scar.adam(0.01, 0.8, 0.95, 1e-6, 0.02),
        lambda optim, x: optim.Adam(x, lr=0.01, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.02),
    ),
    "AdamW": (scar.adamw(), lambda optim, x: optim.AdamW(x)),
    "AdamW with its numbers": (
        scar.adamw(0.01, 0.8, 0.95, 1e-6, 0.2),
        lambda optim, x: optim.AdamW(x, lr=0.01, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.2),
    ),
    "RMSprop": (scar.rmsprop(), lambda optim, x: optim.RMSprop(x)),
    "RMSprop with momentum and decay": (
        scar.rmsprop(0.01, 0.9, 1e-6, 0.8, 0.02),
        lambda optim, x: optim.RMSprop(x, lr=0.01, alpha=0.9, eps=1e-6, momentum=0.8, weight_decay=0.02),
    ),
}


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("case", CASES)
def test_a_rule_is_torchs_optimizer(case: str, dtype: str) -> None:
    import torch  # here, so that no other test runs with it

    rule, make = CASES[case]
    draw = np.random.default_rng(3)
    start = draw.normal(size=SHAPE).astype(dtype)
    parameter = torch.nn.Parameter(torch.tensor(start))
    optimizer = make(torch.optim, [parameter])
    table = scar.Table("w", SHAPE, dtype=dtype, rule=rule, blocks=tables.rows(4))
    store = BlockStore(table, np.arange(table.blocks, dtype=np.uint32))
    store.values[:] = start.reshape(-1)
    for _ in range(STEPS):
        gradient = draw.normal(size=SHAPE).astype(dtype)
        parameter.grad = torch.tensor(gradient)
        optimizer.step()
        apply_push(store, None, gradient.reshape(-1), lambda: None)
    expected = parameter.detach().numpy().reshape(-1)
    assert np.abs(store.values - expected).max() <= BOUNDS[dtype] * np.abs(expected).max()
