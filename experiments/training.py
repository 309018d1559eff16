"""The paper's MLR as a training file for a real cluster: a clock is a batch, of which each worker takes its share."""

import os

import scar
from experiments.panels import workload
from experiments.workloads import Regression
from scar.models import mlr

model = workload(os.environ.get("SCAR_EXPERIMENT_PANEL", "mlr-mnist"))
assert isinstance(model, Regression)
job = model.job
data, batch = model.data, model.batch


def train(worker: scar.Worker) -> None:
    batches = -(-len(data.y) // batch)
    for clock in worker.clocks():
        start = clock % batches * batch
        share = worker.share(min(batch, len(data.y) - start))
        part = slice(start + share.start, start + share.stop)
        loss, gradient = mlr.loss_and_gradient(worker.pull("w"), data.x[part], data.y[part])
        worker.push("w", gradient)
        worker.report(loss)
