"""Clipping and mixed precision against torch's own, on shards of one process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from scar.errors import InvalidRequest
from tests.unit.torch_shards import Member, Shards

STEPS = 12
WORDS, WIDTH, PADDING = 30, 6, 0
Step = Callable[[Any, Any, int], None]  # one of this model and its optimizer, on the batch of this number


def build(embedding: Any, dtype: str = "float64") -> Any:
    """A table that is looked up twice, with padding, and dense layers."""
    import torch
    from torch import nn

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = embedding(WORDS, WIDTH, padding_idx=PADDING)
            self.hidden = nn.Linear(2 * WIDTH, 8)
            self.out = nn.Linear(8, 2)

        def forward(self, words: Any) -> Any:
            both = self.words(words[:, :3]).mean(1), self.words(words[:, 3:]).sum(1)
            return self.out(torch.tanh(self.hidden(torch.cat(both, 1))))

    torch.set_num_threads(1)
    torch.manual_seed(0)
    return Model().to(getattr(torch, dtype))


def backward(model: Any, step: int, factor: float = 1.0) -> None:
    from torch import nn

    words, y = batch(step)
    (nn.functional.cross_entropy(model(words).double(), y) * factor).backward()


def batch(step: int) -> tuple[Any, Any]:
    """Words, few, so that they repeat within a call and between the two; classes."""
    import torch

    draw = torch.Generator().manual_seed(step)
    return torch.randint(8, (16, 5), generator=draw), torch.randint(2, (16,), generator=draw)


def train_both(mine: Step, torchs: Step, dtype: str = "float64") -> tuple[Any, Any]:
    """After STEPS clocks: the model of a worker, and one of torch with dense gradients."""
    import torch

    import scar
    import scar.torch

    alone = build(torch.nn.Embedding, dtype)
    single = torch.optim.SGD(alone.parameters(), lr=0.5)
    model = build(scar.torch.Embedding, dtype)
    declared = scar.torch.tables(model, torch.optim.SGD(model.parameters(), lr=0.5))
    shards = Shards(scar.Job("gradients", declared))
    member = Member(shards, 0, 1)
    optimizer = scar.torch.Optimizer(member, model)
    for step in range(STEPS):
        for one, its, take in ((alone, single, torchs), (model, optimizer, mine)):
            its.zero_grad()
            take(one, its, step)
        shards.close_clock()
    scar.torch.load(model, member)
    return model, alone


def assert_same(model: Any, alone: Any, rtol: float = 1e-9, atol: float = 1e-12) -> None:
    import torch

    for name, expected in alone.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], expected, rtol=rtol, atol=atol)


@pytest.mark.parametrize("norm_type", [2.0, 1.0, float("inf")])
def test_clipping_is_torchs_of_dense_gradients_and_rows_together(norm_type: float) -> None:
    import torch

    max_norm = {2.0: 0.2, 1.0: 2.0, float("inf"): 0.1}[norm_type]
    norms: dict[str, list[float]] = {"scar": [], "torch": []}

    def mine(model: Any, optimizer: Any, step: int) -> None:
        backward(model, step)
        norms["scar"].append(optimizer.clip_grad_norm_(max_norm, norm_type).item())
        optimizer.step()

    def torchs(model: Any, optimizer: Any, step: int) -> None:
        backward(model, step)
        total = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm, norm_type)
        norms["torch"].append(total.item())
        optimizer.step()

    assert_same(*train_both(mine, torchs))
    assert norms["scar"] == pytest.approx(norms["torch"], rel=1e-9)
    assert min(norms["torch"]) < max_norm < max(norms["torch"])  # some are clipped, some are not


def test_gradients_that_come_after_a_clipping_are_pushed_too() -> None:
    import torch

    def mine(model: Any, optimizer: Any, step: int) -> None:
        backward(model, step)
        optimizer.clip_grad_norm_(0.1)
        backward(model, step + STEPS)
        optimizer.step()

    def torchs(model: Any, optimizer: Any, step: int) -> None:
        backward(model, step)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        backward(model, step + STEPS)
        optimizer.step()

    assert_same(*train_both(mine, torchs))


def test_what_cannot_be_clipped_is_said_and_nothing_has_the_norm_0() -> None:
    import torch

    import scar
    import scar.torch

    model = torch.nn.Sequential(torch.nn.Embedding(4, 2, sparse=True))
    shards = Shards(scar.Job("sparse", scar.torch.tables(model, scar.sgd(0.1))))
    optimizer = scar.torch.Optimizer(Member(shards, 0, 1), model)
    assert optimizer.clip_grad_norm_(1.0).item() == 0
    model(torch.tensor([1])).sum().backward()
    with pytest.raises(InvalidRequest, match=r"scar\.torch\.Embedding"):
        optimizer.clip_grad_norm_(1.0)


def autocast_step(dtype: str, cache: bool = True) -> Step:
    import torch

    def step_of(model: Any, optimizer: Any, step: int) -> None:
        with torch.autocast("cpu", getattr(torch, dtype), cache_enabled=cache):
            assert model(batch(step)[0]).dtype == getattr(torch, dtype)
            backward(model, step)
        optimizer.step()

    return step_of


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_autocast_takes_torchs_steps_and_what_is_pushed_stays_float32(dtype: str) -> None:
    both = train_both(autocast_step(dtype), autocast_step(dtype), "float32")
    assert_same(*both, rtol=1e-6, atol=1e-7)


def test_autocast_that_is_open_over_clocks_computes_with_what_was_pulled() -> None:
    """Torch's own cache would keep the casts of the first clock until the region ends."""
    import torch

    with torch.autocast("cpu", torch.bfloat16):
        both = train_both(autocast_step("bfloat16"), autocast_step("bfloat16", cache=False), "float32")
    assert_same(*both, rtol=1e-6, atol=1e-7)


def test_a_grad_scaler_unscales_what_is_pushed_and_skips_what_is_not_finite() -> None:
    import torch

    scalers = [torch.amp.GradScaler("cpu", init_scale=1024.0) for _ in range(2)]
    pushes: list[int] = []

    def scaled(scaler: Any, clip: Callable[[Any, Any], Any]) -> Step:
        def step_of(model: Any, optimizer: Any, step: int) -> None:
            factor = float("inf") if step in (3, 4) else 1.0
            backward(model, step, factor * scaler.get_scale())
            scaler.unscale_(optimizer)
            clip(model, optimizer)
            scaler.step(optimizer)
            scaler.update()

        return step_of

    def clip_own(_: Any, optimizer: Any) -> None:
        pushes.append(len(optimizer.param_groups[0]["params"]))
        optimizer.clip_grad_norm_(0.2)

    def clip_torchs(model: Any, _: Any) -> None:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.2)

    for one in scalers:
        one.scale(torch.ones(()))  # makes its state
    both = train_both(scaled(scalers[0], clip_own), scaled(scalers[1], clip_torchs))
    assert_same(*both)
    assert scalers[0].get_scale() == scalers[1].get_scale() == 256.0  # halved twice
    assert set(pushes) == {6}  # four dense tensors, and the rows of two calls
