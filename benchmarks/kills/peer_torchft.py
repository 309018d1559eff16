"""torchft: its lighthouse, and a replica group of one process. It runs in an interpreter that has torchft.

python -m benchmarks.kills.peer_torchft lighthouse HEARTBEAT_MS | replica NUMBER LIGHTHOUSE TIMEOUT_SECONDS
"""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta
from typing import Any

from torch import distributed

from benchmarks.kills.task import KillTask, StepLog, read_spec

GROUPS = 2


def serve_lighthouse(heartbeat: int) -> None:
    """Print the address, then serve until somebody ends this process."""
    from torchft.coordination import LighthouseServer

    server = LighthouseServer(bind="[::]:0", min_replicas=1, heartbeat_timeout_ms=heartbeat)
    print(server.address(), flush=True)  # noqa: T201
    while True:
        time.sleep(3600)


def train_replica(number: int, lighthouse: str, timeout: float) -> None:
    from torchft.ddp import DistributedDataParallel
    from torchft.optim import OptimizerWrapper

    spec = read_spec()
    task = KillTask(spec)
    manager = _make_manager(task, number, lighthouse, timeout)
    model = DistributedDataParallel(manager, task.model)
    optimizer = OptimizerWrapper(manager, task.optimizer)
    log = StepLog(spec, number)
    while len(list(spec.path.glob("*.steps"))) < GROUPS:  # none trains alone before the other has come
        time.sleep(0.01)
    share = task.share_of(number, GROUPS)
    while (step := manager.current_step()) < spec.steps:
        optimizer.zero_grad()
        task.compute_loss(model, step, share).backward()
        optimizer.step()
        if manager.current_step() > step:  # else the step was voted down
            log.write_step(manager.current_step())
    log.write_result(task.evaluate_model(task.model))
    os._exit(0)  # its threads serve on


def _make_manager(task: KillTask, number: int, lighthouse: str, timeout: float) -> Any:
    from torchft.manager import Manager
    from torchft.process_group import ProcessGroupGloo

    def load_state(state: dict[str, Any]) -> None:
        task.model.load_state_dict(state["model"])
        task.optimizer.load_state_dict(state["optimizer"])

    store = distributed.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=timeout)),
        min_replica_size=1,
        load_state_dict=load_state,
        state_dict=lambda: {"model": task.model.state_dict(), "optimizer": task.optimizer.state_dict()},
        replica_id=f"group_{number}",
        store_addr="localhost",
        store_port=store.port,
        rank=0,
        world_size=1,
        lighthouse_addr=lighthouse,
        hostname="localhost",
        timeout=timedelta(seconds=timeout),
    )
    manager.kept_store = store  # it lives as long as the manager
    return manager


if __name__ == "__main__":
    if sys.argv[1] == "lighthouse":
        serve_lighthouse(int(sys.argv[2]))
    else:
        train_replica(int(sys.argv[2]), sys.argv[3], float(sys.argv[4]))
