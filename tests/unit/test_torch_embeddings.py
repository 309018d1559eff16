"""Embeddings by rows against those of torch with sparse gradients, on shards of one process."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from scar.errors import ConfigError
from tests.unit.torch_shards import Member, Shards

STEPS = 25
WORDS, WIDTH, PADDING = 40, 6, 0
OPTIMIZERS = {
    "SGD": lambda optim, parameters: optim.SGD(parameters, lr=0.3),
    "Adagrad": lambda optim, parameters: optim.Adagrad(parameters, lr=0.2),
}


def build(package: Any, seed: int = 0) -> Any:
    """Users by an Embedding, their words by bags, and a dense layer. ``package``: whose embeddings."""
    import torch
    from torch import nn

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.user = package.Embedding(10, WIDTH, sparse=True)
            self.words = package.Embedding(WORDS, WIDTH, padding_idx=PADDING, sparse=True)
            self.sums = package.EmbeddingBag(WORDS, WIDTH, mode="sum", padding_idx=PADDING, sparse=True)
            self.means = package.EmbeddingBag(WORDS, WIDTH, mode="mean", sparse=True)
            self.out = nn.Linear(4 * WIDTH, 2)

        def forward(self, user: Any, words: Any) -> Any:
            parts = [self.user(user), self.words(words).mean(1), self.sums(words), self.means(words)]
            return self.out(torch.cat(parts, 1))

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    return Model().double()


def batch(step: int) -> tuple[Any, Any, Any]:
    """Users, words (few, so that they repeat, and padded), classes."""
    import torch

    draw = torch.Generator().manual_seed(step)
    words = torch.randint(WORDS // 2, (12, 5), generator=draw)
    return torch.randint(10, (12,), generator=draw), words, torch.randint(2, (12,), generator=draw)


def take_step(model: Any, optimizer: Any, examples: tuple[Any, Any, Any]) -> None:
    from torch import nn

    user, words, y = examples
    loss = nn.functional.cross_entropy(model(user, words), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_rows_take_the_steps_of_torchs_sparse_gradients(optimizer: str, workers: int) -> None:
    import torch
    from torch import nn

    import scar.torch

    alone = build(nn)
    single = OPTIMIZERS[optimizer](torch.optim, alone.parameters())
    declared = build(scar.torch)
    made = scar.torch.tables(declared, OPTIMIZERS[optimizer](torch.optim, declared.parameters()))
    shards = Shards(scar.Job("words", made, workers=workers))
    members = [Member(shards, rank, workers) for rank in range(workers)]
    models = [build(scar.torch, 1 + rank) for rank in range(workers)]
    optimizers = [scar.torch.Optimizer(*pair) for pair in zip(members, models, strict=True)]
    for step in range(STEPS):
        user, words, y = batch(step)
        take_step(alone, single, (user, words, y))
        for rank, (model, its) in enumerate(zip(models, optimizers, strict=True)):
            part = slice(rank * 12 // workers, (rank + 1) * 12 // workers)
            take_step(model, its, (user[part], words[part], y[part]))
        shards.close_clock()
        assert shards.last_pushed["user.weight"] == user.unique().tolist()
        assert shards.last_pushed["means.weight"] == words.unique().tolist()
        assert shards.last_pushed["sums.weight"] == words[words != PADDING].unique().tolist()
    trained = build(nn)
    scar.torch.load(trained, members[0])
    for name, expected in alone.state_dict().items():
        torch.testing.assert_close(trained.state_dict()[name], expected, rtol=1e-9, atol=1e-12)


def test_only_the_rows_of_a_batch_are_pulled_and_a_prefetch_is_of_its_clock() -> None:
    import torch

    import scar.torch

    model = torch.nn.Sequential(scar.torch.Embedding(9, 3), torch.nn.Linear(3, 2))
    model[0].prefetch(torch.tensor([1]))  # without a worker it does nothing
    shards = Shards(scar.Job("rows", scar.torch.tables(model, scar.sgd(0.1))))
    assert shards.job.table("0.weight").blocks == 9
    member = Member(shards, 0, 1)
    optimizer = scar.torch.Optimizer(member, model)

    def rows_pulled(ids: list[int]) -> list[list[int]]:
        member.pulls.clear()
        take = model(torch.tensor(ids)).sum()
        take.backward()
        optimizer.step()
        return [pull[1] for pull in member.pulls if pull[0] == "0.weight"]

    assert rows_pulled([5, 2, 5]) == [[2, 5]]
    model[0].prefetch(torch.tensor([[7], [3]]))
    assert rows_pulled([3, 3]) == []
    assert rows_pulled([3, 4]) == [[3, 4]]  # 4 was not asked for
    model[0].prefetch(torch.tensor([8]))
    shards.close_clock()
    assert rows_pulled([8]) == [[8]]  # what came is of the clock before
    assert shards.last_pushed["0.weight"] == [2, 3, 4, 5]


def test_parameters_come_in_one_pull_with_the_rows_of_inputs_that_were_ids_in_the_call_before() -> None:
    import torch

    import scar.torch

    model = build(scar.torch)
    shards = Shards(scar.Job("words", scar.torch.tables(model, scar.sgd(0.1))))
    member = Member(shards, 0, 1)
    optimizer = scar.torch.Optimizer(member, model)
    looked_up: list[Any] = []
    model.user.register_forward_hook(lambda _module, _ids, rows: looked_up.append(rows.detach().clone()))

    def count_pulls(step: int, user: Any = None) -> int:
        before = member.calls
        examples = batch(step)
        user = examples[0] if user is None else user
        take_step(model, optimizer, (user, *examples[1:]))
        values = shards.stores["user.weight"].values.reshape(10, WIDTH)
        assert torch.equal(looked_up[-1], torch.tensor(values)[user])
        return member.calls - before

    assert count_pulls(0) == 4, "each module's rows; the parameters came when the optimizer was made"
    shards.close_clock()
    assert count_pulls(1) == 1
    assert count_pulls(2) == 1, "other rows of the same clock"
    ids = torch.arange(12) % 5
    shards.close_clock()
    assert count_pulls(3, ids) == 1
    ids += 5  # written to: what was found out of it does not count
    assert count_pulls(3, ids) == 1


def test_gradients_of_several_calls_add_up_and_zero_grad_forgets_them() -> None:
    import torch

    import scar.torch

    model = scar.torch.Embedding(5, 2).double()
    shards = Shards(scar.Job("calls", scar.torch.tables(model, scar.sgd(1.0))))
    optimizer = scar.torch.Optimizer(Member(shards, 0, 1), model)
    before = model.weight.detach().clone()
    model(torch.tensor([4])).sum().backward()
    optimizer.zero_grad()
    with torch.no_grad():
        model(torch.tensor([3]))
    model(torch.tensor([1, 2])).sum().backward()
    model(torch.tensor([2])).sum().backward()
    optimizer.step()
    shards.close_clock()
    scar.torch.load(model, Member(shards, 0, 1))
    torch.testing.assert_close(
        before - model.weight.detach(), torch.tensor([0.0, 1, 2, 0, 0])[:, None].expand(5, 2).double()
    )


def test_a_copy_of_a_model_looks_up_its_own_weight() -> None:
    import torch

    import scar.torch

    model = scar.torch.Embedding(5, 2)
    shards = Shards(scar.Job("copy", scar.torch.tables(model, scar.sgd(1.0))))
    scar.torch.Optimizer(Member(shards, 0, 1), model)
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.weight.fill_(7)
    assert other(torch.tensor([1])).tolist() == [[7, 7]]
    assert model(torch.tensor([1])).tolist() != [[7, 7]]


def test_what_rows_are_not_enough_for_is_said() -> None:
    import torch
    from torch import nn

    import scar.torch

    tied = nn.Sequential(scar.torch.Embedding(4, 4), nn.Linear(4, 4, bias=False))
    tied[1].weight = tied[0].weight
    with pytest.raises(ConfigError, match=r"1 needs all of 0\.weight"):
        scar.torch.tables(tied, scar.sgd(0.1))
    with pytest.raises(ConfigError, match="max_norm"):
        scar.torch.tables(nn.Sequential(scar.torch.Embedding(4, 4, max_norm=1.0)), scar.sgd(0.1))
    both = nn.ModuleList([scar.torch.Embedding(4, 4), scar.torch.EmbeddingBag(4, 4, mode="max")])
    both[1].weight = both[0].weight
    shards = Shards(scar.Job("both", scar.torch.tables(both, scar.sgd(1.0))))
    optimizer = scar.torch.Optimizer(Member(shards, 0, 1), both)
    optimizer.pull()
    (both[0](torch.tensor([2])).sum() + both[1](torch.tensor([[2, 2]])).sum()).backward()
    optimizer.step()
    assert shards.pushed["0.weight"].sum() == 8
