"""Numbers of a training as event files of TensorBoard: ``pip install 'scar-ps[tensorboard]'``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tensorboardX import SummaryWriter

from scar.callbacks import FailureNote


class TensorBoard:
    """Scalars by clock, and each failure as text, in ``folder``; look by ``tensorboard --logdir``."""

    def __init__(self, folder: Path | str) -> None:
        self._writer = SummaryWriter(str(folder))

    def log_metrics(self, clock: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, clock)

    def log_failure(self, failure: FailureNote) -> None:
        self._writer.add_text("failures", failure.text, failure.number)

    def close(self) -> None:
        self._writer.close()
