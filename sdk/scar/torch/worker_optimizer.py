"""What a worker's loop has in the place of an optimizer of torch."""

from __future__ import annotations

import torch

from scar.errors import InvalidRequest
from scar.torch.pulled_model import PulledModel


class Optimizer(PulledModel):
    """Keeps a model in step with the shards, which take the steps.

    The first ``model(...)`` of a clock pulls the parameters into the model; :meth:`step` pushes its
    gradients. Raises :class:`scar.errors.UnknownTable` and :class:`scar.errors.ConfigError` when the job
    trains another model. ``push_dtype``: ``torch.bfloat16`` halves what is pushed of float32 parameters; what
    rounding takes is added to the next push. ``pull_dtype``: the same of what is pulled, which is no exact
    copy then (:attr:`is_exact`). Rows of embeddings and buffers stay as they are.
    """

    def zero_grad(self) -> None:
        """As torch's: forget all gradients."""
        self._model.zero_grad()
        self._rows.zero_grad()

    @property
    def param_groups(self) -> list[dict[str, list[torch.Tensor]]]:
        """What :meth:`step` would push the gradients of: parameters, and rows that were looked up.

        ``torch.amp.GradScaler`` looks here: ``scaler.step(optimizer)`` pushes nothing when one is not
        finite.
        """
        dense = [self._tensors[name] for name in self._trained]
        found = [tensor for tensor in dense if tensor.grad is not None]
        return [{"params": found + self._rows.with_gradients()}]

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
        """As ``torch.nn.utils.clip_grad_norm_``, of all that this worker would push: rows of embeddings, too.

        Returns the norm before. It is of this worker's gradient, not of the mean over the workers. Raises
        :class:`InvalidRequest` for a sparse gradient.
        """
        dense = list(self._dense_gradients().values())
        whole = dense + self._rows.sum_gradients()
        if not whole:
            return torch.tensor(0.0)
        norms = torch.stack([torch.linalg.vector_norm(gradient, norm_type).cpu() for gradient in whole])
        total = torch.linalg.vector_norm(norms, norm_type)
        factor = torch.clamp(max_norm / (total + 1e-6), max=1.0)  # torch's
        for gradient in dense + [rows.grad for rows in self._rows.with_gradients()]:
            gradient.mul_(factor)
        return total

    def step(self, weight: float | None = None) -> None:
        """Push the gradients times ``weight``; returns at once.

        The shards add up what the workers push, so the default, 1 / ``world_size``, makes it their mean, as
        in DDP. Where workers have unlike numbers of examples, give this one's share of them. One worker
        pushes its buffers as well. Raises :class:`InvalidRequest` when there is nothing to push, or the
        parameters are of another clock.
        """
        self._ensure_current()
        factor = self._share(weight)
        dense = self._dense_gradients()
        pushed = {name: self._array(name, gradient * factor) for name, gradient in dense.items()}
        rows, ids = self._rows.take_gradients(factor)
        if not pushed | rows:
            raise InvalidRequest("no parameter has a gradient", "Call loss.backward() before")
        self._push(pushed, rows, ids)

    def _dense_gradients(self) -> dict[str, torch.Tensor]:
        found = {name: self._tensors[name].grad for name in self._trained}
        found = {name: gradient for name, gradient in found.items() if gradient is not None}
        if sparse := [name for name, gradient in found.items() if gradient.is_sparse]:
            raise InvalidRequest(f"the gradient of {sparse[0]} is sparse", "Use scar.torch.Embedding")
        return found
