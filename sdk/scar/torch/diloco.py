"""Local steps: workers train alone for a while, and the shards take a step on how far they came.

DiLoCo (Douillard et al., 2023); with :func:`scar.sgd` of rate 1 as the job's rule it is local SGD.
"""

from __future__ import annotations

import numpy as np
import torch

from scar.blocks import Array
from scar.errors import ConfigError
from scar.torch.pulled_model import PulledModel
from scar.training import Worker


class DiLoCo(PulledModel):
    """Keeps a model in step with the shards once a clock, in which it takes any number of steps of its own.

        outer = torch.optim.SGD(model.parameters(), lr=0.7, momentum=0.9, nesterov=True)
        job = scar.Job("gpt", scar.torch.tables(model, outer), workers=4)

        def train(worker):
            inner = torch.optim.AdamW(model.parameters(), lr=1e-3)
            diloco = scar.torch.DiLoCo(worker, model)
            for clock in worker.clocks(limit=100):
                for _ in range(50):
                    ...  # a step of the inner optimizer; the first model(...) pulls the parameters
                diloco.step()  # pushes the way back, as a mean over the workers

    The outer optimizer and its state are the shards', so they heal; an inner optimizer is its worker's, and a
    worker that is started again begins with a new one, from the parameters of the open clock. Raises
    :class:`scar.errors.UnknownTable` and :class:`ConfigError` when the job trains another model, or one with
    :class:`scar.torch.Embedding`, whose rows no worker keeps. ``push_dtype`` and
    ``pull_dtype``: as of :class:`scar.torch.Optimizer`.
    """

    def __init__(
        self,
        worker: Worker,
        model: torch.nn.Module,
        push_dtype: torch.dtype | None = None,
        pull_dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(worker, model, push_dtype, pull_dtype)
        if self._rows.tables:
            raise ConfigError(
                f"{', '.join(sorted(self._rows.tables))}: local steps need the whole table in the worker",
                "Use torch.nn.Embedding, or scar.torch.Optimizer with a push for each step",
            )

    def step(self, weight: float | None = None) -> None:
        """Push the pulled parameters minus the present ones, times ``weight``; returns at once.

        That is the outer gradient. The shards add up what the workers push, so the default, 1 /
        ``world_size``, makes it their mean. One worker pushes its buffers as well. Raises
        :class:`InvalidRequest` when the parameters are of another clock.
        """
        self._ensure_current()
        factor = self._share(weight)
        pushed: dict[str, Array] = {}
        for name in self._trained:
            way = np.subtract(self._pulled[name], self._array(name, self._tensors[name]))
            pushed[name] = np.multiply(way, factor, out=way)
        self._push(pushed)
