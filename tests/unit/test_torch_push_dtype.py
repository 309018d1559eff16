"""Pushes of parameters in bfloat16: what rounding takes is not lost, and training ends as in float32."""

from __future__ import annotations

from typing import Any

import pytest

from scar.errors import ConfigError
from tests.unit.test_torch_diloco import EVERY, SHARES
from tests.unit.test_torch_models import build, examples, without_norm
from tests.unit.torch_shards import Member, Shards


def test_what_rounding_takes_comes_with_the_next_push() -> None:
    """The sum of all pushes lacks only what the last rounding took: at most 2^-8 of one push."""
    import torch

    import scar.torch

    model = torch.nn.Linear(40, 3, bias=False)
    shards = Shards(scar.Job("fixed", scar.torch.tables(model, scar.add())))
    member = Member(shards, 0, 1)
    optimizer = scar.torch.Optimizer(member, model, push_dtype=torch.bfloat16)
    start = shards.stores["weight"].values.copy()
    gradient = torch.linspace(-1, 1, 120).reshape(3, 40) / 3
    rounds = 300
    for _ in range(rounds):
        model.weight.grad = gradient.clone()
        optimizer.pull()
        optimizer.step()
        assert member.short == {"weight"}
        shards.close_clock()
    wanted = rounds * gradient.double().numpy().reshape(-1)
    off = abs(shards.stores["weight"].values - start - wanted)
    alone = rounds * abs((gradient.bfloat16().double() - gradient.double()).numpy()).max()
    assert off.max() < 2**-8 * 2 / 3 + 1e-3  # and float32's own sums
    assert alone > 20 * off.max()  # what rounding each push would have taken


@pytest.mark.parametrize("every", [1, EVERY])
def test_bfloat16_converges_as_float32_does(every: int) -> None:
    """Two workers, until the loss is a hundredth of what it was."""
    import torch

    full = train_float32(every, None)
    short = train_float32(every, torch.bfloat16)
    assert short < 0.01
    assert short == pytest.approx(full, rel=0.05)


def train_float32(every: int, push_dtype: Any, pull_dtype: Any = None) -> float:
    """Loss after local steps with Adam (``every`` 1: after as many pushes of gradients)."""
    import torch
    from torch import nn

    import scar.torch

    replicas = [without_norm(build(seed)).float() for seed in (0, 8)]
    outer = torch.optim.SGD(replicas[0].parameters(), lr=0.7, momentum=0.9, nesterov=True)
    each = torch.optim.Adam(replicas[0].parameters(), lr=0.02)
    job = scar.Job("float32", scar.torch.tables(replicas[0], each if every == 1 else outer), workers=2)
    shards = Shards(job)
    kind = scar.torch.Optimizer if every == 1 else scar.torch.DiLoCo
    members = [Member(shards, rank, 2) for rank in range(2)]
    synced = [
        kind(member, model, push_dtype, pull_dtype) for member, model in zip(members, replicas, strict=True)
    ]
    inners = [torch.optim.Adam(model.parameters(), lr=0.02) for model in replicas]
    x, y = (one.float() if one.is_floating_point() else one for one in examples())
    for _ in range(300 // every):
        for model, its, inner, part in zip(replicas, synced, inners, SHARES, strict=True):
            for _ in range(every):
                model.zero_grad()
                nn.functional.cross_entropy(model(x[part]), y[part]).backward()
                if every > 1:
                    inner.step()
            its.step()
        shards.close_clock()
    synced[0].pull()
    with torch.no_grad():
        return float(nn.functional.cross_entropy(replicas[0](x), y))


def test_buffers_rows_and_other_dtypes_are_not_rounded() -> None:
    import torch
    from torch import nn

    import scar.torch

    model = nn.Sequential(scar.torch.Embedding(5, 4), nn.Flatten(), nn.BatchNorm1d(8), nn.Linear(8, 2))
    shards = Shards(scar.Job("kinds", scar.torch.tables(model, scar.sgd(0.1))))
    member = Member(shards, 0, 1)
    optimizer = scar.torch.Optimizer(member, model, torch.bfloat16)
    model(torch.tensor([[1, 2], [3, 4]])).sum().backward()
    optimizer.step()
    assert member.short == {"2.weight", "2.bias", "3.weight", "3.bias"}
    assert {"0.weight", "2.running_mean", "2.num_batches_tracked"} <= shards.pushed.keys()
    with pytest.raises(ConfigError, match=r"cannot be torch\.float16"):
        scar.torch.DiLoCo(member, model, push_dtype=torch.float16)
    double = without_norm(build())
    shards = Shards(scar.Job("double", scar.torch.tables(double, scar.sgd(1.0))))
    with pytest.raises(ConfigError, match=r"0\.weight is torch\.float64: only float32"):
        scar.torch.DiLoCo(Member(shards, 0, 1), double, push_dtype=torch.bfloat16)


def test_pulls_come_rounded_and_say_so_and_buffers_do_not() -> None:
    import torch
    from torch import nn

    import scar.torch

    model = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4))
    frozen = nn.Linear(4, 4).requires_grad_(False)
    model.append(frozen)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    shards = Shards(scar.Job("pulls", scar.torch.tables(model, scar.sgd(0.1))))
    member = Member(shards, 0, 1)
    optimizer = scar.torch.Optimizer(member, model, pull_dtype=torch.bfloat16)
    assert not optimizer.is_exact
    assert scar.torch.Optimizer(Member(shards, 0, 1), model).is_exact
    optimizer.pull()
    assert member.pulled_short == {"0.weight", "0.bias", "1.weight", "1.bias"}
    for name in member.pulled_short:
        assert torch.equal(model.state_dict()[name], before[name].bfloat16().float())
    assert torch.equal(frozen.weight, before["2.weight"])
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    assert member.short == set(), "pushes are as they were"
    with pytest.raises(ConfigError, match=r"pulls cannot be torch\.float16"):
        scar.torch.DiLoCo(Member(shards, 0, 1), model, pull_dtype=torch.float16)


@pytest.mark.parametrize("every", [1, EVERY])
def test_bfloat16_both_ways_converges_as_float32_does(every: int) -> None:
    import torch

    both = train_float32(every, torch.bfloat16, torch.bfloat16)
    assert both < 0.01
    assert both == pytest.approx(train_float32(every, None), rel=0.1)
