"""Embeddings of raw ids: any int64 is a key, and has a row from its first gradient on."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from scar.initial_values import Init, normal
from scar.keyed_rows import KeyedValues, KeyPolicy
from scar.tables import Rule, Table
from scar.torch.embeddings import Embedding, EmbeddingBag


class KeyedEmbedding(Embedding):
    """``torch.nn.Embedding`` of raw ids, of which ``capacity`` have rows at most (docs/scale.md).

    ``init``: of a row, default ``scar.normal(0, 1)`` as torch has it; ``keys``: which ids get a row and which
    lose it. Out of a worker it knows the rows that :func:`scar.torch.load` read; others are zero. ``weight``
    only says which optimizer trains the rows.
    """

    def __init__(
        self, capacity: int, embedding_dim: int, *, init: Init | None = None, keys: str | KeyPolicy = "int64"
    ) -> None:
        super().__init__(1, embedding_dim)
        self.row_declaration = RowDeclaration(capacity, init or normal(0.0, 1.0), keys)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if self.pulled_rows is not None:
            return super().forward(input)
        places, rows = self.row_declaration.look_up(input, self.weight)
        return nn.functional.embedding(places, rows)


class KeyedEmbeddingBag(EmbeddingBag):
    """The same of ``torch.nn.EmbeddingBag``. ``mode``: "sum", "mean" or "max"."""

    def __init__(
        self,
        capacity: int,
        embedding_dim: int,
        *,
        mode: str = "mean",
        init: Init | None = None,
        keys: str | KeyPolicy = "int64",
    ) -> None:
        super().__init__(1, embedding_dim, mode=mode)
        self.row_declaration = RowDeclaration(capacity, init or normal(0.0, 1.0), keys)

    def forward(
        self,
        input: torch.Tensor,
        offsets: torch.Tensor | None = None,
        per_sample_weights: torch.Tensor | None = None,
    ) -> torch.Tensor:
        if self.pulled_rows is not None:
            return super().forward(input, offsets, per_sample_weights)
        places, rows = self.row_declaration.look_up(input, self.weight)
        return nn.functional.embedding_bag(
            places, rows, offsets, mode=self.mode, per_sample_weights=per_sample_weights
        )


class RowDeclaration:
    """How a module's table is declared, and the rows that were read of it (``known``; None: none yet)."""

    def __init__(self, capacity: int, init: Init, keys: str | KeyPolicy) -> None:
        self.capacity = capacity
        self.init = init
        self.keys = keys
        self.known: KeyedValues | None = None

    def declare_table(self, name: str, weight: torch.Tensor, dtype: str, rule: Rule) -> Table:
        return Table(
            name,
            keys=self.keys,
            dim=weight.shape[1],
            capacity=self.capacity,
            dtype=dtype,
            rule=rule,
            init=self.init,
        )

    def look_up(self, ids: torch.Tensor, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Places of these ids among rows as those of ``like``, the last of which is zero."""
        known = self.known or KeyedValues(np.empty(0, np.int64), np.empty((0, like.shape[1]), np.float32))
        wanted = ids.detach().cpu().numpy()
        last = len(known.keys)
        at = np.searchsorted(known.keys, wanted)
        found = (at < last) & (np.append(known.keys, 0)[at] == wanted)
        rows = torch.cat((torch.tensor(known.values).to(like), like.new_zeros(1, like.shape[1])))
        return torch.from_numpy(np.where(found, at, last)).to(like.device), rows


def row_declarations(model: nn.Module, tensors: dict[str, torch.Tensor]) -> dict[str, RowDeclaration]:
    """Of the modules whose rows have keys, by the name of their weight among ``tensors``."""
    names = {id(tensor): name for name, tensor in tensors.items()}
    return {
        names[id(module.weight)]: module.row_declaration
        for module in model.modules()
        if isinstance(module, KeyedEmbedding | KeyedEmbeddingBag)
    }
