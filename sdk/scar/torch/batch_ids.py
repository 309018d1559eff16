"""Ids that a model is called with, each once, and which of its inputs become ids of its embeddings."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray

RowIds = NDArray[np.int64]
Inputs = Mapping[int | str, object]  # of one call of a model: by position, or by name


class BatchIds:
    """``unique``: ascending ids of a tensor, each once; ``places``: where each of the tensor's is in them."""

    def __init__(self, ids: torch.Tensor) -> None:
        self._ids = ids
        self._version = ids._version
        found, self.places = torch.unique(ids, return_inverse=True)
        self.unique: RowIds = as_ids(found)

    def is_of(self, ids: torch.Tensor) -> bool:
        """Whether it is of this very tensor, which nobody has written to since."""
        return ids is self._ids and ids._version == self._version


class ModelInputs:
    """Of the open call of a model, and whose ids they became in the call before."""

    def __init__(self) -> None:
        self._inputs: Inputs = {}
        self._batches: dict[int | str, BatchIds] = {}
        self._next: dict[int | str, BatchIds] = {}

    def begin_call(self, inputs: Inputs) -> None:
        self._inputs = inputs
        known = {**self._batches, **self._next}
        self._batches = {at: one for at, one in known.items() if self._is_known(at, one)}

    def expect_next(self, at: int | str, ids: torch.Tensor) -> BatchIds:
        """This input of a call that is to come has these ids."""
        if at not in self._next or not self._next[at].is_of(ids):
            self._next[at] = BatchIds(ids)
        return self._next[at]

    def find_places(self, parts: Mapping[int | str, object]) -> dict[int | str, int | str]:
        """Which of these are inputs of the last call, as they came: by input, their names."""
        return {
            at: name for at, given in self._inputs.items() for name, part in parts.items() if part is given
        }

    def _is_known(self, at: int | str, batch: BatchIds) -> bool:
        given = self._inputs.get(at)
        return isinstance(given, torch.Tensor) and batch.is_of(given)

    def find_input(self, ids: torch.Tensor) -> int | str | None:
        """Which input these ids are, as they came; None: none of them."""
        return next((at for at, given in self._inputs.items() if given is ids), None)

    def find_batch(self, at: int | str | None) -> BatchIds | None:
        """Of this input, where it can be ids."""
        given = None if at is None else self._inputs.get(at)
        if at is None or not isinstance(given, torch.Tensor) or given.is_floating_point():
            return None
        if at not in self._batches or not self._batches[at].is_of(given):
            self._batches[at] = BatchIds(given)
        return self._batches[at]


def as_ids(ids: torch.Tensor) -> RowIds:
    found: RowIds = ids.detach().cpu().numpy()
    return found
