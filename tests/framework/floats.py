"""A training file with floats: least squares by SGD, momentum, AdaGrad and Adam, so that the order of every
sum shows.

``SCAR_TEST_JOB`` (JSON of ``make_job``'s arguments) and ``SCAR_TEST_HISTORY`` (a folder) come from the
environment.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

import scar

CLOCKS = 15


def make_job(name: str = "floats", **options: Any) -> scar.Job:
    rules = {
        "sgd": scar.sgd(0.01),
        "momentum": scar.momentum(0.01),
        "adagrad": scar.adagrad(0.1),
        "adam": scar.adam(0.01),
    }
    tables = [scar.Table(kind, (33, 5), rule=rule, init=scar.normal(0, 1)) for kind, rule in rules.items()]
    return scar.Job(name, tables=tables, **options)


def train(worker: scar.Worker) -> None:
    """Every worker pulls towards its own random target; they write what they end with."""
    draw = np.random.default_rng(worker.rank)
    for _ in worker.clocks(limit=CLOCKS):
        values = worker.pull([table.name for table in worker.job.tables])
        gradients = {
            table: value - draw.normal(size=value.shape).astype(np.float32) for table, value in values.items()
        }
        worker.push(gradients)
        worker.report(sum(float(np.square(gradient).sum()) for gradient in gradients.values()))
    final = worker.pull([table.name for table in worker.job.tables])
    np.savez(
        Path(os.environ["SCAR_TEST_HISTORY"]) / f"rank-{worker.rank}.npz", loss=np.array(worker.loss), **final
    )


job = make_job(**json.loads(os.environ.get("SCAR_TEST_JOB", "{}")))
