"""examples/mlr.py, the README's example, on fewer images and with what each worker pulls written down.

``SCAR_TEST_HISTORY``: a folder, for ``<worker key>-<clock>-<first>-<last>.npy``, with the share of the images
after the clock. ``SCAR_TEST_ONCE``: deal before the loop only.
"""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import numpy as np

import scar
from scar import datasets
from scar.datasets import Dataset

THIN = 10  # one of so many images
PAUSE = 0.03  # seconds of a clock
UNTIL = 0.8  # in place of the example's loss: half as many clocks
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "mlr.py"
LOADED: list[Dataset] = []


def few(_name: str = "auto") -> Dataset:
    """A part of the digits, loaded once."""
    if not LOADED:
        whole = datasets.digits()
        LOADED.append(replace(whole, images=whole.images[::THIN], labels=whole.labels[::THIN]))
    return LOADED[0]


def example() -> ModuleType:
    """The example as a user's file, which sees fewer images."""
    spec = importlib.util.spec_from_file_location("digits_example", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Recording:
    """A worker that writes down what it pulls, and takes its time."""

    def __init__(self, worker: scar.Worker, folder: Path) -> None:
        self._worker, self._folder = worker, folder
        self._part: slice = slice(0, 0)

    def pull(self, table: str) -> np.ndarray:
        clock, values = self._worker.clock_number, self._worker.pull(table)
        np.save(
            self._folder / f"{self._worker.member.key}-{clock}-{self._part.start}-{self._part.stop}.npy",
            values,
        )
        return values

    def data_slice(self, n: int) -> slice:
        if not self._part.stop or "SCAR_TEST_ONCE" not in os.environ:
            self._part = self._worker.data_slice(n)
        return self._part

    def clocks(self, limit: int, until: float) -> Iterator[int]:
        for clock in self._worker.clocks(limit, max(until, UNTIL)):
            yield clock
            time.sleep(PAUSE)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._worker, name)


def train(worker: scar.Worker) -> None:
    module = example()
    module.datasets.load, given = few, module.datasets.load
    try:
        module.train(cast(scar.Worker, Recording(worker, Path(os.environ["SCAR_TEST_HISTORY"]))))
    finally:
        module.datasets.load = given


job = example().job
