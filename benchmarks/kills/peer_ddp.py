"""A rank of torch DDP over gloo under torchrun, or one process alone: both go on from the last file."""

from __future__ import annotations

import os
from datetime import timedelta

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from benchmarks.kills.task import KillTask, StepLog, read_spec, save_atomically

TIMEOUT = timedelta(seconds=20)  # gloo's own is 30 minutes; a group that never comes together hangs so long


def main() -> None:
    spec = read_spec()
    rank = int(os.environ.get("RANK", "0"))
    workers = int(os.environ.get("WORLD_SIZE", "1"))
    task = KillTask(spec)
    first = 0
    checkpoint = spec.path / "checkpoint.pt"
    if checkpoint.exists():
        state = torch.load(checkpoint)
        task.model.load_state_dict(state["model"])
        task.optimizer.load_state_dict(state["optimizer"])
        first = state["step"]
    model = task.model
    if workers > 1:
        distributed.init_process_group("gloo", timeout=TIMEOUT)
        model = DistributedDataParallel(task.model)
    log = StepLog(spec, rank)
    for step in range(first, spec.steps):
        task.optimizer.zero_grad()
        task.compute_loss(model, step, task.share_of(rank, workers)).backward()
        task.optimizer.step()
        done = step + 1
        log.write_step(done)
        if rank == 0 and done % spec.checkpoint == 0:
            state = {"model": task.model.state_dict(), "optimizer": task.optimizer.state_dict(), "step": done}
            save_atomically(checkpoint, state)
    if rank == 0:
        log.write_result(task.evaluate_model(task.model))
    if workers > 1:
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
