"""Wiring of the worker."""

from __future__ import annotations

from dataclasses import replace

import grpc

import scar
from scar.errors import ConfigError
from scar.v1 import worker_pb2, worker_pb2_grpc
from scar_runtime.app import App, Service
from scar_runtime.config import variable
from scar_worker.config import WorkerSettings
from scar_worker.servicer import WorkerServicer
from scar_worker.task import Plan, State, Task

NAME = worker_pb2.DESCRIPTOR.services_by_name["Worker"].full_name
BEAT_SECONDS = 0.1


def build(app: App) -> Service:
    settings = app.settings
    assert isinstance(settings, WorkerSettings)
    for field in ("train", "recovery"):
        if not getattr(settings, field):
            raise ConfigError(f"{variable(field)} is empty", f"Set it: {WorkerSettings.model_fields[field].description}")
    job, train = scar.load_job(settings.train, settings.function)
    plan = Plan(
        settings.recovery,
        replace(
            job,
            name=settings.job or job.name,
            workers=settings.workers or job.workers,
            shards=settings.shards or job.shards,
        ),
        train,
        settings.timeout_seconds,
        settings.patience_seconds,
        settings.unacked_bytes,
        settings.start == "auto",
    )
    task = Task(plan, app.member)

    def register(server: grpc.Server) -> None:
        worker_pb2_grpc.add_WorkerServicer_to_server(WorkerServicer(task), server)

    def beat() -> None:
        """A user's step may take minutes, so a worker is alive as long as its threads run at all."""
        while not app.stopping.wait(BEAT_SECONDS):
            app.heart.epoch = task.epoch
            app.heart.beat()

    def start() -> None:
        app.spawn("beat", beat)
        app.spawn("stop", lambda: task.follow(app.stopping))

    return Service(
        register=register,
        service_names=(NAME,),
        start=start,
        stop=lambda: None,  # the main thread has left the job already
        ready=lambda: task.state is State.TRAINING,
        settled=lambda: task.state is not State.FAILED,  # to wait for the job and for other workers is its part, too
        main=task.run,
    )
