"""The training file of `scar compare`: MLR on the digits that come with the package, until somebody stops it.

The loss is of a fixed sample, so that it means the same whoever lives and however the data is shared. Clocks
take a while, as a larger model's do: whoever watches through a port-forward has to see clock 20 before it is
long over.
"""

import time

import numpy as np

import scar
from scar import datasets
from scar.models import mlr

THIN = 4  # a fourth of the images
SAMPLE = 2000  # images whose loss is reported
RATE = 0.2
PAUSE = 0.1  # seconds
LIMIT = 100_000  # clocks; the runs end long before

job = scar.Job(
    "compare",
    tables=[scar.Table("w", (datasets.FEATURES, datasets.CLASSES), rule=scar.sgd(lr=RATE))],
    workers=3,
)


def train(worker: scar.Worker) -> None:
    data = datasets.load("digits")
    x, y = data.examples()
    # a seed is another choice of data
    order = np.random.default_rng(worker.job.seed).permutation(len(y))[::THIN]
    x = x[order]
    y = y[order]
    for _ in worker.clocks(limit=LIMIT):
        share = worker.data_slice(len(y))
        w = worker.pull("w")
        worker.push("w", mlr.loss_and_gradient(w, x[share], y[share])[1] / np.float32(len(y)))
        if worker.is_leader:
            worker.report(
                mlr.loss_and_gradient(w, x[:SAMPLE], y[:SAMPLE])[0] / SAMPLE, examples=SAMPLE, of=SAMPLE
            )
        time.sleep(PAUSE)
