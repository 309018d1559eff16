"""The demo's training file: multinomial logistic regression on images of digits."""

import os

import numpy as np

import scar
from scar import datasets
from scar.models import mlr

EPSILON = float(os.environ.get("SCAR_DEMO_EPSILON", "0.57"))
# exact in float32, and small: in a priority round a block of tally weighs no more than a row of w
TALLY = 2.0**-12

w = scar.Table("w", (datasets.FEATURES, datasets.CLASSES), rule=scar.sgd(lr=0.2))  # a block per row
# every worker counts every iteration in every block, for the demo's checks
tally = scar.Table("tally", 64, rule=scar.add())
job = scar.Job("demo", tables=[w, tally], shards=4, workers=2)


def train(worker: scar.Worker) -> None:
    data = datasets.load(os.environ.get("SCAR_DEMO_DATA", "auto"))
    for _ in worker.clocks(limit=300, until=EPSILON):
        x, y = data.examples(worker.data_slice(len(data)))
        loss, gradient = mlr.loss_and_gradient(worker.pull("w"), x, y)
        worker.push({"w": gradient / np.float32(len(data)), "tally": np.full(64, TALLY, np.float32)})
        worker.report(loss / len(data))
