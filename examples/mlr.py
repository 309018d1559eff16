"""Multinomial logistic regression on MNIST (or on the small set of digits that comes with SCAR, when MNIST cannot be had).

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
    x, y = data.examples(worker.share(len(data)))
    for _ in worker.clocks(limit=300, until=0.6):
        loss, gradient = mlr.loss_and_gradient(worker.pull("w"), x, y)
        worker.push("w", gradient / np.float32(len(data)))
        worker.report(loss / len(data))
