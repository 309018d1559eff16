"""Multinomial logistic regression on MNIST, or on the digits that come with SCAR.

scar train examples/mlr.py --workers 2
"""

import numpy as np

import scar
from scar import datasets
from scar.models import mlr

job = scar.Job(
    "mlr",
    tables=[scar.Table("w", (datasets.FEATURES, datasets.CLASSES), rule=scar.sgd(lr=0.2))],  # a block per row
    shards=4,
    workers=2,
)


def train(worker: scar.Worker) -> None:
    data = datasets.load()
    for _ in worker.clocks(limit=300, until=0.6):
        x, y = data.examples(worker.data_slice(len(data)))  # in every clock: it grows when a worker dies
        loss, gradient = mlr.loss_and_gradient(worker.pull("w"), x, y)
        worker.push("w", gradient / np.float32(len(data)))
        worker.report(loss / len(data))
