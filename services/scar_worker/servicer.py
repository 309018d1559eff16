"""gRPC face of the worker: read the task, encode."""

from __future__ import annotations

import threading

import grpc

from scar.v1 import worker_pb2, worker_pb2_grpc
from scar.version import PROTOCOL
from scar.wire import codec
from scar_worker.stack import format_stack
from scar_worker.task import TaskState, TrainingTask


class WorkerServicer(worker_pb2_grpc.WorkerServicer):
    """``file``: the training file."""

    def __init__(self, task: TrainingTask, file: str = "") -> None:
        self._task = task
        self._file = file

    def Status(
        self, _request: worker_pb2.WorkerStatusRequest, _context: grpc.ServicerContext
    ) -> worker_pb2.WorkerStatus:
        task = self._task
        member = codec.member_to_proto(task.member)
        status = worker_pb2.WorkerStatus(
            member=member,
            state=task.state,
            error=task.error,
            job=task.job,
            waited=task.waited,
            protocol=PROTOCOL,
        )
        worker = task.worker
        if worker is not None:
            seats = worker.worker_names
            name = task.member.name
            status.epoch = worker.epoch
            status.clock = worker.clock_number
            status.world = len(seats)
            status.rank = seats.index(name) if name in seats else 0
            status.reroutes = worker.reroutes
            status.seconds_per_clock = worker.pace.seconds_per_clock
            status.per_clock.CopyFrom(worker_pb2.TimeSplit(**vars(worker.pace.per_clock)))
            if worker.is_leaving and task.state is TaskState.TRAINING:
                status.state = "leaving"
        return status

    def Stack(
        self, _request: worker_pb2.StackRequest, _context: grpc.ServicerContext
    ) -> worker_pb2.StackReply:
        return worker_pb2.StackReply(frames=format_stack(threading.main_thread().ident, self._file))
