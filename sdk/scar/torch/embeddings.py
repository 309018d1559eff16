"""Embeddings whose rows stay on the shards: a worker pulls those of its batch, and pushes their gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from scar._client.pull_requests import PullFuture
from scar.blocks import Array, unite_ascending
from scar.errors import ConfigError
from scar.torch.batch_ids import BatchIds, Inputs, ModelInputs, RowIds, as_ids
from scar.training import Worker


class Lookup(NamedTuple):
    """``rows[places]``: the row of each id; ``padding``: place of the padding row, if it was looked up."""

    rows: torch.Tensor
    places: torch.Tensor
    padding: int | None


class PulledRows:
    """The rows of one module in one worker. A copy of the module has none: it looks up its own weight."""

    def __init__(self, worker: Worker, table: str, module: RowModule, inputs: ModelInputs) -> None:
        self._worker = worker
        self._inputs = inputs
        self._input: int | str | None = None  # of the model, that this module was called with
        self._held: tuple[int, BatchIds, Array] | None = None  # that came with the parameters, of which clock
        self._table = table
        self._weight = module.weight
        self._padding = module.padding_idx
        self._looked_up: list[tuple[RowIds, torch.Tensor]] = []  # that may have a gradient
        self._coming: tuple[int, RowIds, PullFuture] | None = None  # of which clock
        self._clock = -1

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()

    def prefetch(self, ids: torch.Tensor) -> None:
        unique = np.unique(as_ids(ids))
        future = self._worker.pull_async(self._table, rows=unique)
        self._coming = self._worker.clock_number, unique, future

    def find_expected(self) -> BatchIds | None:
        """What the open call of the model will look up, if it does with its inputs as the last one did; None:
        that is not known, or there already.
        """
        batch = self._inputs.find_batch(self._input)
        is_coming = self._coming is not None and self._is_new(self._coming[0])
        is_there = is_coming or (batch is not None and self._held_rows(batch) is not None)
        return None if is_there else batch

    def expect_next(self, inputs: Inputs) -> BatchIds | None:
        """What a call with these inputs will look up, if it does as the last one did; None: not known."""
        ids = None if self._input is None else inputs.get(self._input)
        if self._input is None or not isinstance(ids, torch.Tensor) or ids.is_floating_point():
            return None
        return self._inputs.expect_next(self._input, ids)

    def hold_rows(self, batch: BatchIds, rows: Array) -> None:
        """These have come with the parameters of the open clock."""
        self._held = self._worker.clock_number, batch, rows

    def _held_rows(self, batch: BatchIds) -> Array | None:
        """Those that have come with the parameters; None: none did, or they are of an earlier clock."""
        held = self._held
        return held[2] if held is not None and held[1] is batch and self._is_new(held[0]) else None

    def look_up(self, ids: torch.Tensor) -> Lookup:
        self._input = self._inputs.find_input(ids)
        batch = self._inputs.find_batch(self._input) or BatchIds(ids)
        wanted = batch.unique
        rows = torch.tensor(self._pull(batch), device=self._weight.device)
        if self._weight.requires_grad and torch.is_grad_enabled():
            rows.requires_grad_()
            self._forget_unused()
            self._looked_up.append((wanted, rows))
        return Lookup(rows, batch.places, self._find_padding(wanted))

    def _find_padding(self, wanted: RowIds) -> int | None:
        place = 0 if self._padding is None else int(np.searchsorted(wanted, self._padding))
        return place if place < len(wanted) and wanted[place] == self._padding else None

    def _is_new(self, clock: int) -> bool:
        """What is of an earlier clock is less than what consistencies but ASP promise of this one."""
        return clock == self._worker.clock_number or self._worker.job.consistency == "asp"

    def _pull(self, batch: BatchIds) -> Array:
        wanted = batch.unique
        if (held := self._held_rows(batch)) is not None:
            return held
        if self._coming is not None:
            clock, ids, future = self._coming
            if self._is_new(clock) and np.isin(wanted, ids).all():
                rows: Array = future.result()[np.searchsorted(ids, wanted)]
                return rows
        pulled: Array = self._worker.pull(self._table, rows=wanted)
        return pulled

    def _forget_unused(self) -> None:
        """Rows of an earlier clock of which no loss was made."""
        if self._clock != self._worker.clock_number:
            self._clock = self._worker.clock_number
            self._looked_up = [(ids, rows) for ids, rows in self._looked_up if rows.grad is not None]

    def zero_grad(self) -> None:
        for _, rows in self._looked_up:
            rows.grad = None

    def with_gradients(self) -> list[tuple[RowIds, torch.Tensor]]:
        """Rows since gradients were taken; the gradient of the padding row is 0."""
        return [(ids, rows) for ids, rows in self._looked_up if rows.grad is not None]

    def take_gradients(self) -> list[tuple[RowIds, torch.Tensor]]:
        """Of the rows since the last call, without the padding row; an id may be in several."""
        found = [(ids, rows.grad) for ids, rows in self.with_gradients()]
        self._looked_up = []
        if self._padding is None:
            return found
        kept = [(ids != self._padding, ids, gradient) for ids, gradient in found]
        return [(ids[mask], gradient[torch.from_numpy(mask)]) for mask, ids, gradient in kept]


class _RowsOnShards:
    pulled_rows: PulledRows | None = None

    def prefetch(self, ids: torch.Tensor) -> None:
        """Begin to pull the rows of these ids (any shape) for the next call of this module; return at once.

        They are as of the open clock: call it where the ids are known, before anything else is done in the
        clock. In a later one they are pulled again, but for ASP. Ids that are called without a prefetch are
        pulled then.
        """
        if self.pulled_rows is not None:
            self.pulled_rows.prefetch(ids)


class Embedding(_RowsOnShards, nn.Embedding):  # type: ignore[misc]
    """``torch.nn.Embedding`` with a block per row, of which a worker pulls and pushes those of its batch.

    ``weight`` has the initial values, and what :func:`scar.torch.load` puts there; calls of a worker do not
    look at it. Without ``max_norm``. ``sparse`` makes no difference.
    """

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if self.pulled_rows is None:
            return super().forward(input)
        rows, places, padding = self.pulled_rows.look_up(input)
        return nn.functional.embedding(places, rows, padding, scale_grad_by_freq=self.scale_grad_by_freq)


class EmbeddingBag(_RowsOnShards, nn.EmbeddingBag):  # type: ignore[misc]
    """The same of ``torch.nn.EmbeddingBag``: sums, means or maxima of rows."""

    def forward(
        self,
        input: torch.Tensor,
        offsets: torch.Tensor | None = None,
        per_sample_weights: torch.Tensor | None = None,
    ) -> torch.Tensor:
        if self.pulled_rows is None:
            return super().forward(input, offsets, per_sample_weights)
        rows, places, padding = self.pulled_rows.look_up(input)
        return nn.functional.embedding_bag(
            places,
            rows,
            offsets,
            scale_grad_by_freq=self.scale_grad_by_freq,
            mode=self.mode,
            per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset,
            padding_idx=padding,
        )


RowModule = Embedding | EmbeddingBag


class ModelRows:
    """Of all modules of a model, in one worker. ``tables``: names of the weights that rows are pulled of."""

    def __init__(self, worker: Worker, model: nn.Module, tensors: Mapping[str, torch.Tensor]) -> None:
        self._pulled: dict[str, list[PulledRows]] = {}
        self._inputs = ModelInputs()
        for name, modules in row_modules(model, tensors).items():
            self._pulled[name] = []
            for module in modules:
                module.pulled_rows = PulledRows(worker, name, module, self._inputs)
                self._pulled[name].append(module.pulled_rows)
        self.tables = self._pulled.keys()

    def begin_call(self, inputs: Inputs) -> None:
        """The model is called with these."""
        self._inputs.begin_call(inputs)

    def expected_rows(self) -> dict[str, RowIds]:
        """By table, the rows that the open call will look up, as far as the call before lets it be known."""
        found: dict[str, RowIds] = {}
        for name, pulled in self._pulled.items():
            batches = [batch for one in pulled if (batch := one.find_expected()) is not None]
            if batches:
                found[name] = unite_ascending([batch.unique for batch in batches])
        return found

    def next_rows(self, inputs: Inputs) -> dict[str, RowIds]:
        """The same of a call that is to come."""
        found: dict[str, RowIds] = {}
        for name, pulled in self._pulled.items():
            batches = [batch for one in pulled if (batch := one.expect_next(inputs)) is not None]
            if batches:
                found[name] = unite_ascending([batch.unique for batch in batches])
        return found

    def find_places(self, parts: Inputs) -> dict[int | str, int | str]:
        """Which of these parts of a batch were inputs of the last call: by input, their names."""
        return self._inputs.find_places(parts)

    def hold_rows(self, ids: Mapping[str, RowIds], values: Mapping[str, Array]) -> None:
        """These rows, by table, have come for the open call."""
        for name, rows in ids.items():
            for one in self._pulled[name]:
                if (batch := one.find_expected()) is not None:
                    whole = len(batch.unique) == len(rows)
                    own = values[name] if whole else values[name][np.searchsorted(rows, batch.unique)]
                    one.hold_rows(batch, own)

    def zero_grad(self) -> None:
        for pulled in self._pulled.values():
            for one in pulled:
                one.zero_grad()

    def with_gradients(self) -> list[torch.Tensor]:
        """Rows that were looked up, a tensor for each call of a module."""
        modules = [one for pulled in self._pulled.values() for one in pulled]
        return [rows for one in modules for _, rows in one.with_gradients()]

    def sum_gradients(self) -> list[torch.Tensor]:
        """One for each table: the gradients of its rows, those of calls with the same ids added up."""
        found = []
        for pulled in self._pulled.values():
            pairs = [pair for one in pulled for pair in one.with_gradients()]
            if pairs:
                unique, places = np.unique(np.concatenate([ids for ids, _ in pairs]), return_inverse=True)
                gradients = torch.cat([rows.grad for _, rows in pairs])
                sums = gradients.new_zeros(len(unique), *gradients.shape[1:])
                found.append(sums.index_add_(0, torch.from_numpy(places).to(sums.device), gradients))
        return found

    def take_gradients(self, factor: float) -> tuple[dict[str, Array], dict[str, RowIds]]:
        """By table: a gradient times ``factor`` for each of these ids, some of which are there twice."""
        arrays: dict[str, Array] = {}
        ids: dict[str, RowIds] = {}
        for name, pulled in self._pulled.items():
            pairs = [pair for one in pulled for pair in one.take_gradients() if len(pair[0])]
            if pairs:
                ids[name] = np.concatenate([some for some, _ in pairs])
                arrays[name] = (torch.cat([gradient for _, gradient in pairs]) * factor).cpu().numpy()
        return arrays, ids


def row_modules(model: nn.Module, tensors: Mapping[str, torch.Tensor]) -> dict[str, list[RowModule]]:
    """The modules that look up rows, by the name of their weight among ``tensors``.

    Raises :class:`ConfigError` where rows are not enough.
    """
    names = {id(tensor): name for name, tensor in tensors.items()}
    found: dict[str, list[RowModule]] = {}
    whole: dict[str, str] = {}  # what other modules have
    for path, module in model.named_modules():
        own = [names[id(one)] for one in module.parameters(recurse=False) if id(one) in names]
        if not isinstance(module, RowModule):
            whole |= dict.fromkeys(own, path or "the model")
            continue
        if module.max_norm is not None:
            raise ConfigError(f"{path} has max_norm, which changes rows that no gradient is pushed for")
        for name in own:
            found.setdefault(name, []).append(module)
    if shared := sorted(whole.keys() & found.keys()):
        raise ConfigError(
            f"{whole[shared[0]]} needs all of {shared[0]}, not only rows",
            "Look it up by a torch.nn.Embedding",
        )
    return found
