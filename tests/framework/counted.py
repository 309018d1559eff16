"""A training file that counts in the model how often each example was worked on, in each epoch.

``SCAR_TEST_JOB`` (JSON of ``make_job``'s arguments), ``SCAR_TEST_LIMIT`` (clocks) and ``SCAR_TEST_OVER`` (a
file; the last clocks wait for it: all deaths are over) come from the environment.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

import scar

EXAMPLES, BATCH, EPOCHS = 50, 12, 12
CLOCKS = 5 * EPOCHS
HELD_CLOCK = 50
PAUSE = 0.03  # seconds of "computing" in a clock, so that a kill finds the training under way


def make_job(**options: Any) -> scar.Job:
    return scar.Job("counted", [scar.Table("seen", (EPOCHS, EXAMPLES))], workers=3, **options)


def train(worker: scar.Worker) -> None:
    sampler = scar.BatchSampler(worker, EXAMPLES, BATCH)
    for clock in worker.clocks(limit=int(os.environ["SCAR_TEST_LIMIT"])):
        while clock == HELD_CLOCK and not Path(os.environ["SCAR_TEST_OVER"]).exists():
            time.sleep(PAUSE)
        mine = sampler.indices(clock)
        seen = np.zeros((1, EXAMPLES), np.float32)
        seen[0, mine] = 1
        worker.pull("seen", ids=[sampler.epoch(clock)])  # as training does: it waits for the clock before
        time.sleep(PAUSE)
        worker.push("seen", seen, ids=[sampler.epoch(clock)])
        worker.report(len(mine))


job = make_job(**json.loads(os.environ.get("SCAR_TEST_JOB", "{}")))
