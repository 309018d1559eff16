"""The convolutional network of the paper on MNIST, with Adam on the shards.

A block is an eighth of a layer, with its moments.

scar train examples/cnn.py --workers 2
"""

import numpy as np

import scar
from scar import datasets
from scar.models import cnn

BATCH = 64

job = scar.Job(
    "cnn",
    tables=[
        scar.Table(
            name,
            shape,
            rule=scar.adam(),
            init=scar.normal(0.0, cnn.deviation(name)),
            blocks=scar.layer_shards(8),
        )
        for name, shape in cnn.SHAPES.items()
    ],
    shards=4,
    workers=2,
)


def train(worker: scar.Worker) -> None:
    data = datasets.load()
    for clock in worker.clocks(limit=600):
        batch = np.random.default_rng([worker.job.seed, clock]).integers(0, len(data), BATCH)[
            worker.data_slice(BATCH)
        ]
        images = data.images[batch] * np.float32(1 / 255)
        loss, gradients = cnn.loss_and_gradients(worker.pull(list(cnn.SHAPES)), images, data.labels[batch])
        weight = np.float32(len(batch) / BATCH)
        worker.push({name: gradient * weight for name, gradient in gradients.items()})
        worker.report(float(loss * weight))
