"""Models of torch as tables, and workers that train them, on shards of one process."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import scar
from scar.errors import ConfigError, InvalidRequest, UnknownTable
from tests.unit.torch_shards import Member, Shards

STEPS = 25


def build(seed: int = 0) -> Any:
    import torch
    from torch import nn

    torch.set_num_threads(1)  # more of them spin on a busy machine
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3)).double()


def without_norm(model: Any) -> Any:
    del model[1]
    return model


def examples(n: int = 24) -> Any:
    import torch

    draw = torch.Generator().manual_seed(5)
    x = torch.randn(n, 6, generator=draw, dtype=torch.float64)
    return x, (x[:, :3] + x[:, 3:]).argmax(dim=1)


def test_a_model_becomes_tables_by_the_names_of_its_state_dict() -> None:
    import torch

    import scar.torch

    model = build()
    model[0].weight.requires_grad_(False)
    model.register_buffer("mask", torch.ones(3, dtype=torch.bool))
    model.register_buffer("scratch", torch.ones(3), persistent=False)
    others = [model[3].bias, model[1].weight, model[0].weight]
    groups = [{"params": [model[3].weight], "lr": 0.5}, {"params": others}]
    made = {t.name: t for t in scar.torch.tables(model, torch.optim.SGD(groups, lr=0.1, momentum=0.9))}
    assert made.keys() == model.state_dict().keys() - {"mask"}
    assert made["3.weight"].rule == scar.momentum(0.5, 0.9)
    assert made["3.bias"].rule == made["1.weight"].rule == scar.momentum(0.1, 0.9)
    frozen, in_no_group, buffer = made["0.weight"], made["0.bias"], made["1.running_mean"]
    assert frozen.rule == in_no_group.rule == buffer.rule == scar.assign()
    assert (made["1.num_batches_tracked"].shape, made["1.num_batches_tracked"].dtype_name) == ((1,), "int64")
    np.testing.assert_array_equal(made["3.weight"].init.array, model[3].weight.detach().numpy())


def test_rows_are_grouped_by_size() -> None:
    from torch import nn

    import scar.torch

    wide = {t.name: t.blocks for t in scar.torch.tables(nn.Linear(2048, 50), scar.sgd(0.1))}
    assert wide == {"weight": 50, "bias": 1}
    narrow = {t.name: t.blocks for t in scar.torch.tables(nn.Linear(256, 50), scar.sgd(0.1))}
    assert narrow == {"weight": 13, "bias": 1}


def test_a_shared_parameter_is_one_table_and_gets_the_gradients_of_both_places() -> None:
    import torch
    from torch import nn

    import scar.torch

    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    model[1].weight = model[0].weight
    job = scar.Job("tied", scar.torch.tables(model, scar.sgd(1.0)))
    assert [table.name for table in job.tables] == ["0.weight"]
    shards = Shards(job)
    optimizer = scar.torch.Optimizer(Member(shards, 0, 1), model)
    before = model[0].weight.detach().clone()
    model(torch.ones(1, 3)).sum().backward()
    gradient = model[0].weight.grad.clone()
    optimizer.step()
    shards.close_clock()
    model(torch.ones(1, 3))
    torch.testing.assert_close(model[1].weight.detach(), before - gradient)


@pytest.mark.parametrize("shares", [(slice(0, 12), slice(12, 24)), (slice(0, 7), slice(7, 24))])
def test_two_workers_take_the_steps_of_one_process(shares: tuple[slice, ...]) -> None:
    """The mean of their gradients is that of the whole batch; without normalisation over the batch."""
    import torch
    from torch import nn

    import scar.torch

    x, y = examples()
    alone, *replicas = (
        nn.Sequential(*(layer for i, layer in enumerate(build(s)) if i != 1)) for s in range(3)
    )
    single = torch.optim.AdamW(alone.parameters(), lr=0.05, weight_decay=0.1)
    shards = Shards(scar.Job("mlp", scar.torch.tables(alone, single), workers=2))
    members = [Member(shards, rank, 2) for rank in range(2)]
    optimizers = [scar.torch.Optimizer(m, model) for m, model in zip(members, replicas, strict=True)]
    for _ in range(STEPS):
        single.zero_grad()
        nn.functional.cross_entropy(alone(x), y).backward()
        single.step()
        for model, optimizer, part in zip(replicas, optimizers, shares, strict=True):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[part]), y[part]).backward()
            optimizer.step(None if len(x[part]) == 12 else len(x[part]) / len(x))
        shards.close_clock()
    copy = without_norm(build(9))
    scar.torch.load(copy, members[0])
    for name, expected in alone.state_dict().items():
        torch.testing.assert_close(copy.state_dict()[name], expected, rtol=1e-9, atol=1e-12)


def test_buffers_are_those_of_the_leader_and_what_is_frozen_comes_once() -> None:
    import torch
    from torch import nn

    import scar.torch

    x, y = examples()
    models = [build(seed) for seed in range(2)]
    models[0][0].weight.requires_grad_(False)
    models[1][0].weight.requires_grad_(False)
    shards = Shards(scar.Job("norm", scar.torch.tables(models[0], scar.sgd(0.1)), workers=2))
    members = [Member(shards, rank, 2) for rank in range(2)]
    optimizers = [scar.torch.Optimizer(m, model) for m, model in zip(members, models, strict=True)]
    torch.testing.assert_close(models[1][0].weight, models[0][0].weight)
    for _ in range(3):
        for model, optimizer, part in zip(models, optimizers, (slice(0, 12), slice(12, 24)), strict=True):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[part]), y[part]).backward()
            optimizer.step()
        leaders = {name: one.clone() for name, one in models[0].named_buffers()}
        shards.close_clock()
        for optimizer in optimizers:
            optimizer.pull()
        for name, buffer in models[1].named_buffers():
            torch.testing.assert_close(buffer, leaders[name])
    assert int(models[1][1].num_batches_tracked) == 3
    assert ["0.weight" in names for names in members[1].pulls] == [True, False, False, False]


def test_what_goes_wrong_in_a_loop_is_said() -> None:
    import torch
    from torch import nn

    import scar.torch

    model = nn.Sequential(nn.Embedding(4, 2, sparse=True))
    shards = Shards(scar.Job("one", scar.torch.tables(model, scar.sgd(0.1))))
    optimizer = scar.torch.Optimizer(Member(shards, 0, 1), model)
    with pytest.raises(InvalidRequest, match="Call loss"):
        optimizer.step()
    model(torch.tensor([1])).sum().backward()
    with pytest.raises(InvalidRequest, match=r"scar\.torch\.Embedding"):
        optimizer.step()
    shards.close_clock()
    with pytest.raises(InvalidRequest, match="of clock 0, and clock 1 is open"):
        optimizer.step()
    with pytest.raises(ConfigError, match="Build the model as the job's file does"):
        scar.torch.load(nn.Sequential(nn.Embedding(5, 2)), Member(shards, 0, 1))
    with pytest.raises(UnknownTable):
        scar.torch.load(nn.Linear(2, 2), Member(shards, 0, 1))


def test_what_shards_cannot_do_is_said_when_the_job_is_declared() -> None:
    import torch
    from torch import nn

    import scar.torch

    model = nn.Linear(2, 2)
    with pytest.raises(ConfigError, match="no rule for LBFGS"):
        scar.torch.tables(model, torch.optim.LBFGS(model.parameters()))
    with pytest.raises(ConfigError, match="nothing of this model would be trained"):
        scar.torch.tables(model, torch.optim.SGD(nn.Linear(2, 2).parameters()))
    with pytest.raises(ConfigError, match="amsgrad of Adam"):
        scar.torch.tables(model, torch.optim.Adam(model.parameters(), amsgrad=True))
    with pytest.raises(ConfigError, match=r"model\.float"):
        scar.torch.tables(model.bfloat16(), scar.sgd(0.1))


@pytest.mark.parametrize(
    ("name", "options", "rule"),
    [
        ("SGD", {"lr": 0.1}, scar.sgd(0.1)),
        ("SGD", {"lr": 0.1, "weight_decay": 0.2}, scar.sgd(0.1, 0.2)),
        (
            "SGD",
            {"lr": 0.1, "momentum": 0.5, "nesterov": True, "weight_decay": 0.2},
            scar.momentum(0.1, 0.5, True, 0.2),
        ),
        ("Adagrad", {"lr": 0.1, "weight_decay": 0.2}, scar.adagrad(0.1, 1e-10, 0.2)),
        ("Adam", {"betas": (0.8, 0.9), "weight_decay": 0.2}, scar.adam(1e-3, 0.8, 0.9, 1e-8, 0.2)),
        ("AdamW", {"lr": 0.1, "eps": 1e-6}, scar.adamw(0.1, eps=1e-6, weight_decay=0.01)),
        ("RMSprop", {"momentum": 0.5, "weight_decay": 0.2}, scar.rmsprop(1e-2, 0.99, 1e-8, 0.5, 0.2)),
    ],
)
def test_an_optimizer_of_torch_names_a_rule(name: str, options: dict[str, Any], rule: scar.Rule) -> None:
    import torch

    import scar.torch

    model = torch.nn.Linear(2, 2)
    made = scar.torch.tables(model, getattr(torch.optim, name)(model.parameters(), **options))
    assert {table.name: table.rule for table in made} == {"weight": rule, "bias": rule}


def test_without_torch_it_says_what_to_install_and_the_sdk_needs_none() -> None:
    program = (
        "import sys; sys.modules['torch'] = None; import scar; print('scar is there'); import scar.torch"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}  # the sources that are tested
    run = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120
    )
    assert run.stdout == "scar is there\n"
    assert run.stderr.endswith(
        "ModuleNotFoundError: scar.torch needs PyTorch: pip install 'scar-ps[torch]'\n"
    )
