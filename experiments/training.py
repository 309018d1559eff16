"""The experiment's models as a training file for a real cluster; ``SCAR_EXPERIMENT_PANEL`` says which.

A worker can be made to wait before a clock, so that a failure finds it between two iterations, as in the paper's model. Without
that, workers have pulled what they need a moment after a clock is closed, and a failure finds copies of everything with them.
"""

import os
import time
from collections.abc import Iterator
from typing import Any, cast

import scar
from examples import mf as factorisation
from experiments.panels import workload
from experiments.processes import PAUSE_AT, PAUSE_SECONDS
from experiments.workloads import Regression
from scar.models import mlr

model = workload(os.environ["SCAR_EXPERIMENT_PANEL"])
job = model.job


class Patient:
    """A worker that waits before one clock."""

    def __init__(self, worker: scar.Worker) -> None:
        self._worker = worker
        self._at = int(os.environ.get(PAUSE_AT, "-1"))
        self._seconds = float(os.environ.get(PAUSE_SECONDS, "0"))

    def clocks(self, limit: int | None = None, until: float | None = None) -> Iterator[int]:
        for clock in self._worker.clocks(limit, until):
            if clock == self._at:
                time.sleep(self._seconds)
            yield clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._worker, name)


def train(worker: scar.Worker) -> None:
    patient = cast(scar.Worker, Patient(worker))
    if isinstance(model, Regression):
        regression(patient, model)
    else:
        factorisation.train(patient)


def regression(worker: scar.Worker, model: Regression) -> None:
    """The paper's MLR: a clock is a batch, of which each worker takes its share."""
    data, batch = model.data, model.batch
    batches = -(-len(data.y) // batch)
    for clock in worker.clocks():
        start = clock % batches * batch
        share = worker.share(min(batch, len(data.y) - start))
        part = slice(start + share.start, start + share.stop)
        loss, gradient = mlr.loss_and_gradient(worker.pull("w"), data.x[part], data.y[part])
        worker.push("w", gradient)
        worker.report(loss)
