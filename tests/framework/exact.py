"""A training file of floats whose workers write down what they pulled in each clock: the true values of it.

From the environment: ``SCAR_TEST_HISTORY`` (a folder), ``SCAR_TEST_LIMIT`` (clocks), ``SCAR_TEST_BEST`` (file
of the best model, whose evaluations become better until clock ``BEST``), ``SCAR_TEST_NAN`` (clock with such a
loss).
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

import numpy as np

import scar
from scar.errors import Diverged

PAUSE = 0.02  # seconds of "computing" in a clock
EVERY, BEST, PATIENCE = 5, 20, 3


def make_job(**options: Any) -> scar.Job:
    rules = {"sgd": scar.sgd(0.01), "adam": scar.adam(0.01)}
    tables = [scar.Table(kind, (33, 5), rule=rule, init=scar.normal(0, 1)) for kind, rule in rules.items()]
    return scar.Job("exact", tables=tables, workers=2, **options)


def digest(tables: Mapping[str, Any]) -> str:
    """Of every bit of these tables."""
    raw = b"".join(np.ascontiguousarray(tables[name]).tobytes() for name in ("sgd", "adam"))
    return hashlib.sha256(raw).hexdigest()


def train(worker: scar.Worker) -> None:
    with (Path(os.environ["SCAR_TEST_HISTORY"]) / f"{worker.member.name}.txt").open("a") as history:
        try:
            train_clocks(worker, history)
        except Diverged as error:
            history.write(f"diverged {worker.clock_number} {error.message}\n")
        history.write(f"ended {worker.clock_number}\n")


def train_clocks(worker: scar.Worker, history: TextIO) -> None:
    best, nan = os.environ.get("SCAR_TEST_BEST"), int(os.environ.get("SCAR_TEST_NAN", "-1"))
    stopping = scar.EarlyStopping("val_loss", patience=PATIENCE, keep_best=best) if best else None
    on_nan = "stop" if nan >= 0 else "ignore"
    limit = int(os.environ["SCAR_TEST_LIMIT"])
    for clock in worker.clocks(limit=limit, stopping=stopping, on_nan=on_nan):
        worker.data_slice(2)  # the deal of this clock, so that it has a loss whoever is there
        before = worker.epoch
        values = worker.pull(["sgd", "adam"])
        if worker.epoch == before:
            history.write(f"{clock} {before} {digest(values)}\n")
            history.flush()
        if stopping is not None:
            worker.evaluate(lambda _, clock=clock: {"val_loss": abs(clock - BEST)}, every=EVERY)
        draw = np.random.default_rng((worker.rank, clock))
        time.sleep(PAUSE)
        targets = {name: draw.normal(size=value.shape).astype(np.float32) for name, value in values.items()}
        worker.push({name: values[name] - target for name, target in targets.items()})
        worker.report(np.nan if clock == nan and worker.rank == 1 else 1.0)


job = make_job()
