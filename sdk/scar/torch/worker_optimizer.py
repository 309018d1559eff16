"""What a worker's loop has in the place of an optimizer of torch."""

from __future__ import annotations

import torch

from scar.blocks import Array
from scar.errors import InvalidRequest
from scar.torch.pulled_model import PulledModel


class Optimizer(PulledModel):
    """Keeps a model in step with the shards, which take the steps.

    The first ``model(...)`` of a clock pulls the parameters into the model; :meth:`step` pushes its
    gradients. Raises :class:`scar.errors.UnknownTable` and :class:`scar.errors.ConfigError` when the job
    trains another model.
    """

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
        self._ensure_current()
        factor = self._share(weight)
        found = {name: self._tensors[name].grad for name in self._trained}
        pushed = {name: self._gradient(name, one, factor) for name, one in found.items() if one is not None}
        rows, ids = self._rows.take_gradients(factor)
        pushed |= rows
        if not pushed:
            raise InvalidRequest("no parameter has a gradient", "Call loss.backward() before")
        self._worker.push(pushed | self._own_buffers(), ids=ids)

    def _gradient(self, name: str, gradient: torch.Tensor, factor: float) -> Array:
        if gradient.is_sparse:
            raise InvalidRequest(f"the gradient of {name} is sparse", "Use scar.torch.Embedding")
        return self._array(name, gradient * factor)
