"""Wiring of the worker."""

from __future__ import annotations

import math
import shlex
import sys
import threading
from dataclasses import replace
from pathlib import Path

import grpc

import scar
from scar.errors import ConfigError
from scar.jobfile import load_function
from scar.v1 import worker_pb2, worker_pb2_grpc
from scar.wire.timing import TIMING
from scar_runtime.process.app import App, Service
from scar_runtime.process.config import variable
from scar_runtime.process.logs import divert_output
from scar_worker import metrics
from scar_worker.config import WorkerSettings
from scar_worker.servicer import WorkerServicer
from scar_worker.task import TaskState, TrainingPlan, TrainingTask

NAME = worker_pb2.DESCRIPTOR.services_by_name["Worker"].full_name
BEAT_SECONDS = TIMING.heartbeat


def build(app: App) -> Service:
    settings = app.settings
    assert isinstance(settings, WorkerSettings)
    _require_settings(settings)
    if settings.output:
        divert_output(settings.output)
    task = TrainingTask(_load_plan(settings), app.member, app.secret)
    threading.excepthook = task.thread_failed
    metrics.register(lambda: task.time_spent)

    def register_servicer(server: grpc.Server) -> None:
        worker_pb2_grpc.add_WorkerServicer_to_server(WorkerServicer(task, settings.train), server)

    def start_threads() -> None:
        app.spawn("beat", lambda: _record_progress(app, task))
        app.spawn("stop", lambda: task.stop_with(app.stopping))

    return Service(
        register=register_servicer,
        service_names=(NAME,),
        start=start_threads,
        stop=lambda: None,  # the main thread has left the job already
        ready=lambda: task.state is TaskState.TRAINING,
        # to wait for the job and for other workers is its part, too
        settled=lambda: task.state is not TaskState.FAILED,
        main=task.run,
        stories=task.stories,
    )


def _require_settings(settings: WorkerSettings) -> None:
    """Raises :class:`ConfigError` for one that has no default and is not set."""
    for field in ("train", "recovery"):
        if not getattr(settings, field):
            raise ConfigError(
                f"{variable(field)} is empty", f"Set it: {WorkerSettings.model_fields[field].description}"
            )


def _load_plan(settings: WorkerSettings) -> TrainingPlan:
    """Load the training file, which finds its folder in ``sys.path`` and its arguments in ``sys.argv``."""
    arguments = shlex.split(settings.arguments)
    file = Path(settings.train).resolve()
    sys.path.insert(0, str(file.parent))  # what a training function imports lies beside it, too
    own = None
    if settings.job and settings.start == "no":
        train = load_function(settings.train, settings.function, arguments)
    else:
        job, train = scar.load_job(settings.train, settings.function, arguments)
        own = replace(
            job,
            name=settings.job or job.name,
            workers=settings.workers or job.workers,
            shards=settings.shards or job.shards,
        )
    sys.argv = [str(file), *arguments]
    return TrainingPlan(
        recovery=settings.recovery,
        job=own.name if own else settings.job,
        train=train,
        timeout=settings.timeout_seconds,
        start_timeout=settings.patience_seconds,
        unacked_bytes=settings.unacked_bytes,
        outage_timeout=settings.outage_seconds or math.inf,
        starts=own if settings.start == "auto" else None,
    )


def _record_progress(app: App, task: TrainingTask) -> None:
    """A user's step may take minutes, so a worker is alive as long as its threads run at all."""
    while not app.stopping.wait(BEAT_SECONDS):
        app.liveness.epoch = task.epoch
        app.liveness.record_progress()
