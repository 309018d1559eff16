"""gRPC face of the worker: read the task, encode."""

from __future__ import annotations

import grpc

from scar import codec
from scar.v1 import worker_pb2, worker_pb2_grpc
from scar_worker.task import Task


class WorkerServicer(worker_pb2_grpc.WorkerServicer):
    def __init__(self, task: Task) -> None:
        self._task = task

    def Status(self, _request: worker_pb2.WorkerStatusRequest, _context: grpc.ServicerContext) -> worker_pb2.WorkerStatus:
        task = self._task
        member = codec.member_to_proto(task.member)
        status = worker_pb2.WorkerStatus(member=member, state=task.state, error=task.error, job=task.job)
        worker = task.worker
        if worker is not None:
            status.epoch, status.clock, status.world = worker.epoch, worker.clock_number, worker.world
            status.rank, status.reroutes = max(worker.rank, 0), worker.reroutes
            status.seconds_per_clock = worker.seconds_per_clock
        return status
