"""A training file whose model is spoilt by one batch: least squares, whose loss tends to 0.

From the environment: ``SCAR_TEST_FOLDER`` (where workers write how it went), ``SCAR_TEST_LIMIT`` (clocks),
``SCAR_TEST_POISON`` (clocks whose batch is poisoned at worker-1, by commas; none: undisturbed),
``SCAR_TEST_ALWAYS`` (and so is every batch after the first), ``SCAR_TEST_GRADIENT`` (what the gradient
is multiplied with then), ``SCAR_TEST_ON_NAN``.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np

import scar
from scar.errors import Diverged

WIDTH, EXAMPLES = 40, 120
PERIOD = 4  # clocks in which as many blocks are saved as there are
PAUSE = 0.02  # seconds of "computing" in a clock


def make_job(**options: Any) -> scar.Job:
    table = scar.Table("w", (WIDTH, 4), rule=scar.sgd(0.1), init=scar.normal(0, 1))
    options.setdefault("checkpoint", scar.Checkpoint(fraction=0.25, period=PERIOD, keep=8))
    return scar.Job("diverging", tables=[table], workers=2, **options)


def make_data() -> tuple[Any, Any]:
    draw = np.random.default_rng(7)
    x = draw.normal(size=(EXAMPLES, WIDTH)).astype(np.float32)
    return x, x @ draw.normal(size=(WIDTH, 4)).astype(np.float32)


def train(worker: scar.Worker) -> None:
    folder = Path(os.environ["SCAR_TEST_FOLDER"])
    with (folder / f"{worker.member.name}.txt").open("a") as history:
        try:
            train_clocks(worker, history)
        except Diverged as error:
            history.write(f"diverged {worker.clock_number} {error.message}\n")
        history.write(f"ended {worker.clock_number} {worker.loss}\n")


def is_poisoned(worker: scar.Worker, clock: int) -> bool:
    clocks = [int(one) for one in os.environ.get("SCAR_TEST_POISON", "").split(",") if one]
    late = bool(os.environ.get("SCAR_TEST_ALWAYS")) and bool(clocks) and clock >= clocks[0]
    return worker.member.name == "worker-1" and (clock in clocks or late)


def train_clocks(worker: scar.Worker, history: Any) -> None:
    x, y = make_data()
    factor = np.float32(os.environ.get("SCAR_TEST_GRADIENT", "1e30"))
    limit = int(os.environ["SCAR_TEST_LIMIT"])
    on_nan = os.environ.get("SCAR_TEST_ON_NAN", "restore")
    with np.errstate(all="ignore"):
        for clock in worker.clocks(limit=limit, on_nan=on_nan):
            mine = worker.data_slice(EXAMPLES)
            w = worker.pull("w")
            residual = x[mine] @ w - y[mine]
            gradient = x[mine].T @ residual / EXAMPLES
            time.sleep(PAUSE)
            worker.push("w", gradient * factor if is_poisoned(worker, clock) else gradient)
            loss = float((residual * residual).sum() / EXAMPLES)
            history.write(f"clock {clock} {worker.epoch} {loss}\n")
            history.flush()
            worker.report(loss)


job = make_job()
