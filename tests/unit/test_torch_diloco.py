"""Local steps against DiLoCo in plain torch, on shards of one process."""

from __future__ import annotations

from typing import Any

import pytest

from scar.errors import ConfigError, InvalidRequest
from tests.unit.test_torch_models import build, examples, without_norm
from tests.unit.torch_shards import Member, Shards

ROUNDS, EVERY = 6, 5
SHARES = (slice(0, 12), slice(12, 24))


def inner_step(model: Any, optimizer: Any, part: slice) -> None:
    from torch import nn

    x, y = examples()
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x[part]), y[part]).backward()
    optimizer.step()


def plain_diloco(outer_options: dict[str, Any]) -> Any:
    """Algorithm 1 of the paper, its workers one after the other in one process."""
    import torch

    model = without_norm(build(0))
    outer = torch.optim.SGD(model.parameters(), **outer_options)
    replicas = [without_norm(build(0)) for _ in SHARES]
    inners = [torch.optim.AdamW(one.parameters(), lr=0.02) for one in replicas]
    for _ in range(ROUNDS):
        ways = []
        for replica, inner, part in zip(replicas, inners, SHARES, strict=True):
            replica.load_state_dict(model.state_dict())
            for _ in range(EVERY):
                inner_step(replica, inner, part)
            ways.append(
                [
                    (mine - its).detach()
                    for mine, its in zip(model.parameters(), replica.parameters(), strict=True)
                ]
            )
        for parameter, *both in zip(model.parameters(), *ways, strict=True):
            parameter.grad = sum(both) / len(both)
        outer.step()
    return model


@pytest.mark.parametrize(
    "outer_options",
    [{"lr": 0.7, "momentum": 0.9, "nesterov": True}, {"lr": 1.0}],
    ids=["DiLoCo", "local SGD"],
)
def test_it_is_diloco_of_plain_torch(outer_options: dict[str, Any]) -> None:
    import torch

    import scar.torch

    expected = plain_diloco(outer_options)
    replicas = [without_norm(build(seed)) for seed in (0, 8)]
    outer = torch.optim.SGD(replicas[0].parameters(), **outer_options)
    shards = Shards(scar.Job("local", scar.torch.tables(replicas[0], outer), workers=2))
    members = [Member(shards, rank, 2) for rank in range(2)]
    locals_ = [scar.torch.DiLoCo(one, model) for one, model in zip(members, replicas, strict=True)]
    inners = [torch.optim.AdamW(model.parameters(), lr=0.02) for model in replicas]
    for _ in range(ROUNDS):
        for model, diloco, inner, part in zip(replicas, locals_, inners, SHARES, strict=True):
            for _ in range(EVERY):
                inner_step(model, inner, part)
            diloco.step()
        shards.close_clock()
    copy = without_norm(build(9))
    scar.torch.load(copy, members[0])
    for name, values in expected.state_dict().items():
        torch.testing.assert_close(copy.state_dict()[name], values, rtol=1e-9, atol=1e-12)


def test_one_inner_step_and_an_outer_rate_of_one_is_a_step_of_all_workers() -> None:
    import torch

    import scar.torch

    alone, *replicas = (without_norm(build(0)) for _ in range(3))
    single = torch.optim.SGD(alone.parameters(), lr=0.3)
    shards = Shards(scar.Job("local", scar.torch.tables(replicas[0], scar.sgd(1.0)), workers=2))
    locals_ = [scar.torch.DiLoCo(Member(shards, rank, 2), model) for rank, model in enumerate(replicas)]
    for _ in range(3):
        inner_step(alone, single, slice(0, 24))
        for model, diloco, part in zip(replicas, locals_, SHARES, strict=True):
            inner_step(model, torch.optim.SGD(model.parameters(), lr=0.3), part)
            diloco.step()
        shards.close_clock()
    replicas[1](examples()[0])  # pulls
    for name, values in alone.state_dict().items():
        torch.testing.assert_close(replicas[1].state_dict()[name], values, rtol=1e-9, atol=1e-12)


def test_buffers_are_those_of_the_leader() -> None:
    import torch

    import scar.torch

    models = [build(seed) for seed in range(2)]
    shards = Shards(scar.Job("norm", scar.torch.tables(models[0], scar.sgd(1.0)), workers=2))
    locals_ = [scar.torch.DiLoCo(Member(shards, rank, 2), model) for rank, model in enumerate(models)]
    for model, diloco, part in zip(models, locals_, SHARES, strict=True):
        inner_step(model, torch.optim.SGD(model.parameters(), lr=0.1), part)
        diloco.step()
    leaders = {name: one.clone() for name, one in models[0].named_buffers()}
    shards.close_clock()
    locals_[1].pull()
    for name, buffer in models[1].named_buffers():
        torch.testing.assert_close(buffer, leaders[name])


def test_what_goes_wrong_is_said() -> None:
    import torch
    from torch import nn

    import scar.torch

    model = without_norm(build())
    shards = Shards(scar.Job("local", scar.torch.tables(model, scar.sgd(1.0))))
    diloco = scar.torch.DiLoCo(Member(shards, 0, 1), model)
    diloco.step()
    shards.close_clock()
    with pytest.raises(InvalidRequest, match="of clock 0, and clock 1 is open"):
        diloco.step()
    rows = nn.Sequential(scar.torch.Embedding(4, 2))
    shards = Shards(scar.Job("rows", scar.torch.tables(rows, torch.optim.SGD(rows.parameters(), lr=1.0))))
    with pytest.raises(ConfigError, match=r"0\.weight: local steps need the whole table"):
        scar.torch.DiLoCo(Member(shards, 0, 1), rows)
