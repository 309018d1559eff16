"""What a worker's loop has in the place of an optimizer of torch."""

from __future__ import annotations

import torch

from scar.blocks import Array
from scar.errors import InvalidRequest
from scar.torch.embeddings import ModelRows
from scar.torch.model_tables import copy_values, ensure_declared, saved_tensors
from scar.training import Worker


class Optimizer:
    """Keeps a model in step with the shards, which take the steps.

    The first ``model(...)`` of a clock pulls the parameters into the model; :meth:`step` pushes its
    gradients. Raises :class:`scar.errors.UnknownTable` and :class:`scar.errors.ConfigError` when the job
    trains another model.
    """

    def __init__(self, worker: Worker, model: torch.nn.Module) -> None:
        self._worker = worker
        self._model = model
        self._tensors = saved_tensors(model)
        ensure_declared(self._tensors, worker)
        self._rows = ModelRows(worker, model, self._tensors)
        dense = [name for name in self._tensors if name not in self._rows.tables]
        rules = {name: worker.job.table(name).rule.kind for name in dense}
        self._trained = [name for name, kind in rules.items() if kind != "assign"]
        parameters = {id(parameter) for parameter in model.parameters()}
        self._buffers = [name for name in dense if id(self._tensors[name]) not in parameters]
        self._clock = worker.clock_number
        copy_values(self._tensors, dense, worker)  # the frozen ones, too: once is enough for them
        model.register_forward_pre_hook(_PullsFirst(self))

    @property
    def is_current(self) -> bool:
        """Whether the parameters are of the open clock."""
        return self._clock == self._worker.clock_number

    def pull(self) -> None:
        """Take the parameters of the open clock. A call of the model does it; a call of a part of it does
        not.
        """
        copy_values(self._tensors, [*self._trained, *self._buffers], self._worker)
        self._clock = self._worker.clock_number

    def zero_grad(self) -> None:
        """As torch's: forget all gradients."""
        self._model.zero_grad()
        self._rows.zero_grad()

    def step(self, weight: float | None = None) -> None:
        """Push the gradients times ``weight``; returns at once.

        The shards add up what the workers push, so the default, 1 / ``world_size``, makes it their mean, as
        in DDP. Where workers have unlike numbers of examples, give this one's share of them. One worker
        pushes its buffers as well. Raises :class:`InvalidRequest` when there is nothing to push, or the
        parameters are of another clock.
        """
        if not self.is_current:
            raise InvalidRequest(
                f"the parameters are of clock {self._clock}, and clock {self._worker.clock_number} is open",
                "Call the model, or optimizer.pull(), in every clock",
            )
        factor = 1 / self._worker.world_size if weight is None else weight
        found = {name: self._tensors[name].grad for name in self._trained}
        pushed = {name: self._gradient(name, one, factor) for name, one in found.items() if one is not None}
        rows, ids = self._rows.take_gradients(factor)
        pushed |= rows
        if not pushed:
            raise InvalidRequest("no parameter has a gradient", "Call loss.backward() before")
        if self._worker.is_leader:
            pushed |= {name: self._array(name, self._tensors[name]) for name in self._buffers}
        self._worker.push(pushed, ids=ids)

    def _gradient(self, name: str, gradient: torch.Tensor, factor: float) -> Array:
        if gradient.is_sparse:
            raise InvalidRequest(f"the gradient of {name} is sparse", "Use scar.torch.Embedding")
        return self._array(name, gradient * factor)

    def _array(self, name: str, tensor: torch.Tensor) -> Array:
        array: Array = tensor.detach().cpu().numpy().reshape(self._worker.job.table(name).shape)
        return array


class _PullsFirst:
    """What a model does before a call. A copy of the model does nothing, so that it can be made and saved."""

    def __init__(self, optimizer: Optimizer | None = None) -> None:
        self._optimizer = optimizer

    def __call__(self, *_: object) -> None:
        if self._optimizer is not None and not self._optimizer.is_current:
            self._optimizer.pull()

    def __reduce__(self) -> tuple[type[_PullsFirst], tuple[()]]:
        return _PullsFirst, ()
