"""Where the numbers of a training go beside `scar status`: TensorBoard, MLflow, W&B, or a class of yours.

    from scar.callbacks.tensorboard import TensorBoard

    result = cluster.train(job, train, callbacks=[TensorBoard("runs/mlr")])

They live in the program that trains, not in workers: what is killed takes nothing along.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class FailureNote:
    """What a failure cost. ``clock``: of the manifest that blocks came back from; ``seconds``: from the death
    until all blocks were served again, as far as that is known.
    """

    number: int
    clock: int
    members: tuple[str, ...]
    lost_blocks: int
    lost_pushes: int
    seconds: float

    @property
    def text(self) -> str:
        """In a line, for people."""
        return (
            f"{', '.join(self.members)}: {self.lost_blocks} blocks came back in {self.seconds:.2f} s,"
            f" {self.lost_pushes} pushes lost"
        )


class TrainingCallback(Protocol):
    """What is told of a training, in one thread. What it raises ends the training."""

    def log_metrics(self, clock: int, metrics: Mapping[str, float]) -> None:
        """Once for each clock that has a loss: ``loss`` and what workers logged, summed over workers. Clocks
        ascend, but one whose loss becomes known late comes later.
        """

    def log_failure(self, failure: FailureNote) -> None:
        """Once for each failure, when what it cost is known, or at the end."""

    def close(self) -> None:
        """The training has ended, however it did."""
