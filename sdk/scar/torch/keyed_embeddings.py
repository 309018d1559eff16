"""Embeddings of raw ids: any int64 is a key, and has a row from its first gradient on."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from scar.errors import ConfigError
from scar.given_rows import given_rows
from scar.initial_values import Init, normal
from scar.keyed_rows import KeyedValues, KeyPolicy
from scar.tables import Rule, Table
from scar.torch.embeddings import Embedding, EmbeddingBag


class _SavesRows:
    """Beside ``weight`` a ``state_dict`` has "weight.keys", int64[n], and "weight.values", [n, dim]: the rows
    that the module knows.
    """

    row_declaration: RowDeclaration
    weight: torch.Tensor

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)  # type: ignore[misc]
        known = self.row_declaration.known_rows(self.weight)
        for part, array in known._asdict().items():
            destination[f"{prefix}weight.{part}"] = torch.tensor(array)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, metadata: Any, strict: bool, *lists: list[str]
    ) -> None:
        names = [f"{prefix}weight.{part}" for part in KeyedValues._fields]
        parts = [state_dict.pop(name, None) for name in names]
        super()._load_from_state_dict(state_dict, prefix, metadata, strict, *lists)  # type: ignore[misc]
        missing, _, errors = lists
        absent = [name for name, part in zip(names, parts, strict=True) if part is None]
        if absent:
            missing += absent if strict else []
            return
        try:
            self.row_declaration.take_rows(parts[0], parts[1], self.weight)
        except ConfigError as error:
            errors.append(f"{prefix}weight: {error.message}")


class KeyedEmbedding(_SavesRows, Embedding):
    """``torch.nn.Embedding`` of raw ids, of which ``capacity`` have rows at most (docs/scale.md).

    ``init``: of a row, default ``scar.normal(0, 1)`` as torch has it; ``keys``: which ids get a row and which
    lose it. Out of a worker it knows the rows that :func:`scar.torch.load` or ``load_state_dict`` read;
    others are zero. ``weight`` only says which optimizer trains the rows.
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


class KeyedEmbeddingBag(_SavesRows, EmbeddingBag):
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
    """How a module's table is declared, and the rows that were read of it (``known``; None: none yet), with
    which a job begins that is declared then.
    """

    def __init__(self, capacity: int, init: Init, keys: str | KeyPolicy) -> None:
        self.capacity = capacity
        self.init = init
        self.keys = keys
        self.known: KeyedValues | None = None

    def declare_table(self, name: str, weight: torch.Tensor, dtype: str, rule: Rule) -> Table:
        known = self.known_rows(weight)
        return Table(
            name,
            keys=self.keys,
            dim=weight.shape[1],
            capacity=self.capacity,
            dtype=dtype,
            rule=rule,
            init=given_rows(known.keys, known.values, self.init) if len(known.keys) else self.init,
        )

    def known_rows(self, like: torch.Tensor) -> KeyedValues:
        """Those that were read; ``like``: a weight of their width."""
        return self.known or KeyedValues(np.empty(0, np.int64), like.detach()[:0].cpu().numpy())

    def take_rows(self, keys: torch.Tensor, values: torch.Tensor, like: torch.Tensor) -> None:
        """Know these rows in the place of all others. Raises :class:`ConfigError` for what are none."""
        if keys.dtype != torch.int64 or keys.dim() != 1 or values.shape != (len(keys), like.shape[1]):
            raise ConfigError(
                f"rows of keys are int64[n] and [n, {like.shape[1]}], not {keys.dtype} of shape"
                f" {tuple(keys.shape)} and values of shape {tuple(values.shape)}"
            )
        found, order = np.unique(keys.numpy(force=True), return_index=True)
        if len(found) != len(keys):
            raise ConfigError("a key is there twice")
        self.known = KeyedValues(found, values.detach().cpu().to(like.dtype).numpy()[order])

    def look_up(self, ids: torch.Tensor, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Places of these ids among rows as those of ``like``, the last of which is zero."""
        known = self.known_rows(like)
        wanted = ids.detach().cpu().numpy()
        last = len(known.keys)
        at = np.searchsorted(known.keys, wanted)
        found = (at < last) & (np.append(known.keys, 0)[at] == wanted)
        rows = torch.cat((torch.tensor(known.values).to(like), like.new_zeros(1, like.shape[1])))
        return torch.from_numpy(np.where(found, at, last)).to(like.device), rows


def row_entries(model: nn.Module) -> dict[str, RowDeclaration]:
    """What keys and values are called in the ``state_dict``, by each module's names of it."""
    return {
        f"{path}{'.' if path else ''}weight.{part}": module.row_declaration
        for path, module in model.named_modules(remove_duplicate=False)
        if isinstance(module, KeyedEmbedding | KeyedEmbeddingBag)
        for part in KeyedValues._fields
    }


def row_declarations(model: nn.Module, tensors: dict[str, torch.Tensor]) -> dict[str, RowDeclaration]:
    """Of the modules whose rows have keys, by the name of their weight among ``tensors``."""
    names = {id(tensor): name for name, tensor in tensors.items()}
    return {
        names[id(module.weight)]: module.row_declaration
        for module in model.modules()
        if isinstance(module, KeyedEmbedding | KeyedEmbeddingBag)
    }
