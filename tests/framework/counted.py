"""A training file that counts in the model how often each example was worked on, in each epoch.

``SCAR_TEST_JOB`` (JSON of ``make_job``'s arguments) and ``SCAR_TEST_LIMIT`` (clocks) come from the
environment.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

import numpy as np

import scar

EXAMPLES, BATCH, EPOCHS = 50, 12, 12
CLOCKS = 5 * EPOCHS
PAUSE = 0.03  # seconds of "computing" in a clock, so that a kill finds the training under way


def make_job(**options: Any) -> scar.Job:
    return scar.Job("counted", [scar.Table("seen", (EPOCHS, EXAMPLES))], workers=3, **options)


def train(worker: scar.Worker) -> None:
    sampler = scar.BatchSampler(worker, EXAMPLES, BATCH)
    for clock in worker.clocks(limit=int(os.environ["SCAR_TEST_LIMIT"])):
        mine = sampler.indices(clock)
        seen = np.zeros((1, EXAMPLES), np.float32)
        seen[0, mine] = 1
        worker.pull("seen", ids=[sampler.epoch(clock)])  # as training does: it waits for the clock before
        time.sleep(PAUSE)
        worker.push("seen", seen, ids=[sampler.epoch(clock)])
        worker.report(len(mine))


job = make_job(**json.loads(os.environ.get("SCAR_TEST_JOB", "{}")))
