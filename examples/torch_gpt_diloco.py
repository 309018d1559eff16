"""A small GPT on the sources of Python's own library, by DiLoCo: four workers meet every 20 steps.

Shards take the outer step, Nesterov momentum on how far the workers came, and keep its state; each worker has
an AdamW of its own. docs/torch.md says what it costs when one is killed. It needs scar-ps[torch].

scar train examples/torch_gpt_diloco.py --workers 4
"""

from pathlib import Path

import numpy as np
import torch
from torch import nn

import scar
import scar.torch

EVERY, BATCH, LENGTH = 20, 8, 64
WIDTH, HEADS, LAYERS, CHARACTERS = 64, 4, 2, 128


class GPT(nn.Module):  # type: ignore[misc]  # torch is not there when types are checked
    def __init__(self) -> None:
        super().__init__()
        self.characters, self.places = nn.Embedding(CHARACTERS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, 0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, CHARACTERS)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(text.shape[1])
        x = self.characters(text) + self.places.weight[: text.shape[1]]
        out: torch.Tensor = self.head(self.layers(x, mask=mask, is_causal=True))
        return out


torch.manual_seed(0)
model = GPT()
outer = torch.optim.SGD(model.parameters(), lr=0.7, momentum=0.9, nesterov=True)
job = scar.Job("torch-gpt-diloco", scar.torch.tables(model, outer), shards=4, workers=4)


def read_text() -> torch.Tensor:
    """A text that every machine has: modules of the standard library."""
    names = ("argparse", "ast", "inspect", "pathlib", "socket", "subprocess", "tarfile", "typing")
    files = [Path(__import__(name).__file__ or "") for name in names]
    files = [file / "__init__.py" if file.is_dir() else file for file in files]
    text = b"".join(file.read_bytes() for file in files)
    return torch.tensor([min(byte, CHARACTERS - 1) for byte in text])


def draw_rows(text: torch.Tensor, seed: tuple[int, ...]) -> torch.Tensor:
    starts = np.random.default_rng(seed).integers(len(text) - LENGTH - 1, size=BATCH)
    return torch.stack([text[start : start + LENGTH + 1] for start in starts.tolist()])


def train(worker: scar.Worker) -> None:
    text = read_text()
    inner = torch.optim.AdamW(model.parameters(), lr=1e-3)
    diloco = scar.torch.DiLoCo(worker, model)
    for clock in worker.clocks(limit=60):
        losses = []
        for step in range(EVERY):
            rows = draw_rows(text, (worker.rank, clock * EVERY + step))
            loss = nn.functional.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
            inner.zero_grad()
            loss.backward()
            inner.step()
            losses.append(loss.item())
        diloco.step()
        worker.report(sum(losses) / EVERY / worker.world_size)
