"""The same task as a job of SCAR; its workers run ``train`` of this file."""

from __future__ import annotations

import scar
import scar.torch
from benchmarks.kills.task import KillSpec, KillTask, StepLog, read_spec

WORKERS = 2
SHARDS = 2
FRACTION = 0.2  # of the blocks is saved every FRACTION * checkpoint steps


def build_job(spec: KillSpec) -> scar.Job:
    task = KillTask(spec, scar.torch.Embedding)
    return scar.Job(
        "kills",
        scar.torch.tables(task.model, task.optimizer),
        shards=SHARDS,
        workers=WORKERS,
        recovery=spec.strategy,
        checkpoint=scar.Checkpoint("priority", fraction=FRACTION, period=spec.checkpoint),
    )


def train(worker: scar.Worker) -> None:
    spec = read_spec()
    task = KillTask(spec, scar.torch.Embedding)
    optimizer = scar.torch.Optimizer(worker, task.model)
    log = StepLog(spec, worker.rank)
    for clock in worker.clocks(limit=spec.steps):
        if clock:
            log.write_step(clock)
        share = worker.data_slice(spec.batch)
        loss = task.compute_loss(task.model, clock, share)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        worker.report(loss.item() / worker.world_size)
    log.write_step(spec.steps)
    if worker.is_leader:
        log.write_result(task.evaluate_model(task.model))
