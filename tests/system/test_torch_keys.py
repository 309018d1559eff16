"""Embeddings of raw ids in a model of torch: the steps of torch's own by rows, without a mapping of ids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import scar
from scar_local import LocalCluster
from tests.framework.cluster import TIMEOUT

IDS = np.unique(np.random.default_rng(1).integers(-(2**63), 2**63 - 1, 50))
STEPS = 10
WIDTH = 4


def build(keyed: bool) -> Any:
    """Two fields of ids, one row each and a bag of three, and a dense layer."""
    import torch
    from torch import nn

    import scar.torch

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            if keyed:
                self.user = scar.torch.KeyedEmbedding(1000, WIDTH, init=scar.constant(0.5))
                self.words = scar.torch.KeyedEmbeddingBag(1000, WIDTH, mode="sum", init=scar.constant(0.25))
            else:
                self.user = nn.Embedding(len(IDS), WIDTH)
                self.words = nn.EmbeddingBag(len(IDS), WIDTH, mode="sum")
                nn.init.constant_(self.user.weight, 0.5)
                nn.init.constant_(self.words.weight, 0.25)
            self.out = nn.Linear(2 * WIDTH, 2)

        def forward(self, user: Any, words: Any) -> Any:
            return self.out(torch.cat((self.user(user), self.words(words)), 1))

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Model()
    with torch.no_grad():
        model.out.weight.copy_(torch.arange(4 * WIDTH).reshape(2, -1) / 7)
        model.out.bias.zero_()
    return model


def batch(step: int) -> tuple[Any, Any, Any]:
    """Places of users and words among IDS, and classes."""
    import torch

    draw = torch.Generator().manual_seed(step)
    places = torch.randint(len(IDS) - 5, (16, 4), generator=draw)
    return places[:, 0], places[:, 1:], torch.randint(2, (16,), generator=draw)


def loss_of(model: Any, user: Any, words: Any, y: Any) -> Any:
    from torch import nn

    return nn.functional.cross_entropy(model(user, words), y)


def test_raw_ids_take_the_steps_of_torchs_rows(tmp_path: Path) -> None:
    import torch

    import scar.torch

    def train(worker: scar.Worker) -> None:
        import torch

        import scar.torch

        raw = torch.from_numpy(IDS)
        model = build(keyed=True)
        optimizer = scar.torch.Optimizer(worker, model)
        for clock in worker.clocks(limit=STEPS):
            user, words, y = batch(clock)
            loss = loss_of(model, raw[user], raw[words], y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    alone = build(keyed=False)
    single = torch.optim.Adagrad(alone.parameters(), lr=0.1)
    for step in range(STEPS):
        single.zero_grad()
        loss_of(alone, *batch(step)).backward()
        single.step()
    model = build(keyed=True)
    declared = torch.optim.Adagrad(model.parameters(), lr=0.1)
    job = scar.Job("raw-ids", scar.torch.tables(model, declared))
    with LocalCluster(tmp_path / "home", shards=2) as cluster:
        result = cluster.train(job, train, timeout=TIMEOUT)
        with scar.connect(cluster.endpoints.recovery_address) as reader:
            scar.torch.load(model, reader)
    raw = torch.from_numpy(IDS)
    for step in range(STEPS):
        user, words, _ = batch(step)
        expected = alone(user, words)
        torch.testing.assert_close(model(raw[user], raw[words]), expected, rtol=1e-4, atol=1e-5)
    assert 10 < len(result.model["user.weight"].keys) <= len(IDS) - 5
    assert torch.equal(model.user(torch.tensor([12345])), torch.zeros(1, WIDTH))  # nobody has trained it
