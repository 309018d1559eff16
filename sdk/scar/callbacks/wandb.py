"""Numbers of a training as a run of Weights & Biases: ``pip install 'scar-ps[wandb]'``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import wandb

from scar.callbacks import FailureNote


class WandB:
    """A run of ``project``: metrics by clock, failures with their numbers by ``failure/number``.

    ``options``: of ``wandb.init``, as ``name="mlr"`` or ``mode="offline"``.
    """

    def __init__(self, project: str, **options: Any) -> None:
        self._run = wandb.init(project=project, **options)
        # by clock instead of W&B's own steps, which drop what comes late
        self._run.define_metric("clock")
        self._run.define_metric("*", step_metric="clock")

    def log_metrics(self, clock: int, metrics: Mapping[str, float]) -> None:
        self._run.log({"clock": clock, **metrics})

    def log_failure(self, failure: FailureNote) -> None:
        numbers = {"number": failure.number, "lost_blocks": failure.lost_blocks, "seconds": failure.seconds}
        self._run.log({f"failure/{name}": value for name, value in numbers.items()})
        self._run.summary[f"failure.{failure.number}"] = failure.text

    def close(self) -> None:
        self._run.finish()
