"""A training file whose workers keep local state: random steps of least squares, each drawn from the step's
own numbers.

``SCAR_TEST_JOB`` (JSON of ``make_job``'s arguments) and ``SCAR_TEST_HISTORY`` (a folder) come from the
environment.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

import scar

STEPS = 60
PAUSE = 0.02  # seconds of "computing" in a step, so that a kill finds the training under way


def make_job(name: str = "kept", **options: Any) -> scar.Job:
    checkpoint = scar.Checkpoint("full", fraction=1.0, period=5)
    tables = [
        scar.Table("w", (16, 4), rule=scar.sgd(0.05), init=scar.normal(0, 1)),
        scar.worker_state_table(workers=3, size=1),
    ]
    return scar.Job(name, tables=tables, workers=3, checkpoint=checkpoint, **options)


def train(worker: scar.Worker) -> None:
    """Ends after STEPS steps are in the model. What each worker hands in is the sum of all that it has
    drawn.
    """
    for _ in worker.clocks():
        local = worker.load_state()
        if local.step >= STEPS:
            break
        target = local.rng.normal(size=(16, 4)).astype(np.float32)
        worker.push("w", worker.pull("w") - target)
        worker.save_state(local.values + float(target.sum()))
        time.sleep(PAUSE)
    if worker.rank == 0:
        final = {name.replace(".", "_"): worker.pull(name) for name in ("w", "scar.workers")}
        np.savez(Path(os.environ["SCAR_TEST_HISTORY"]) / "final.npz", **final)


job = make_job(**json.loads(os.environ.get("SCAR_TEST_JOB", "{}")))
