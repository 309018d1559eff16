"""The experiment's models as a training file for a real cluster; ``SCAR_EXPERIMENT_PANEL`` says which.

A worker can be made to wait before a clock, so that a failure finds it between two iterations, as in the
paper's model. Without that, workers have pulled what they need a moment after a clock is closed, and a
failure finds copies of everything with them.
"""

import os
import time
from collections.abc import Iterator
from typing import Any, cast

import numpy as np

import scar
from experiments.cluster_training import PAUSE_AT, PAUSE_SECONDS
from experiments.panels import load_workload
from experiments.workloads import RIDGE, Factorisation, Regression
from scar.models import mf, mlr

model = load_workload(os.environ["SCAR_EXPERIMENT_PANEL"])
job = model.job


class PausingWorker:
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
    patient = cast(scar.Worker, PausingWorker(worker))
    if isinstance(model, Regression):
        train_regression(patient, model)
    elif isinstance(model, Factorisation):
        train_factorisation(patient, model)


def train_regression(worker: scar.Worker, model: Regression) -> None:
    """The paper's MLR: a clock is a batch, of which each worker takes its share."""
    data = model.data
    batch = model.batch
    batches = -(-len(data.y) // batch)
    for clock in worker.clocks():
        start = clock % batches * batch
        share = worker.data_slice(min(batch, len(data.y) - start))
        part = slice(start + share.start, start + share.stop)
        loss, gradient = mlr.loss_and_gradient(worker.pull("w"), data.x[part], data.y[part])
        worker.push("w", gradient)
        worker.report(loss)


def train_factorisation(worker: scar.Worker, model: Factorisation) -> None:
    """ALS: a clock is half a sweep, whose rows the workers share out."""
    known = model.ratings
    for clock in worker.clocks():
        side, other = ("left", "right") if clock % 2 == 0 else ("right", "left")
        rows = known.by_row if side == "left" else known.by_column
        factors = worker.pull(other)
        share = worker.data_slice(len(rows.starts) - 1)
        solved = np.empty((share.stop - share.start, factors.shape[1]), np.float32)
        explained = mf.solve(rows, factors, RIDGE, solved, share)
        worker.push(side, solved, ids=np.arange(share.start, share.stop))
        whole = mf.objective(known, 0.0, factors, RIDGE) if share.start == 0 else 0.0
        worker.report(whole - explained)
