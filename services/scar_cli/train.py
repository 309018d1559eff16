"""`scar train FILE`: start a training, follow it, and say how it ended."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from threading import Event

from scar.errors import ConfigError
from scar.jobfile import load_file
from scar.strategies import AUTO, find_strategy
from scar.tables import Job
from scar.weight_files import init_from
from scar_admin.status import ClusterStatus, ask_from
from scar_admin.tracebacks import failure_reason
from scar_cli.commentary import Commentary
from scar_cli.followed_training import FollowedTraining, start_training
from scar_cli.job_end import StatusDisplay, await_saved, finished_lines, stopped_text, unsaved_text
from scar_cli.job_settings import apply_settings
from scar_cli.output import make_console
from scar_cli.requests import TrainRequest
from scar_cli.train_display import open_display
from scar_cli.up import stop_signal
from scar_local.callback_feed import CallbackFeed

LOOK_SECONDS = 0.3


def requested_job(request: TrainRequest, job: Job) -> Job:
    """The file's job with what the command line changes.

    A strategy that rolls back gets the full checkpoints that it needs.
    """
    job = apply_settings(job, request.settings or ())
    if request.init_from is not None:
        job = init_from(job, request.init_from)
    recovery = request.strategy or job.recovery
    checkpoint = job.checkpoint
    if request.strategy not in ("", AUTO) and find_strategy(recovery).rollback:
        checkpoint = replace(checkpoint, selection="full")
    return replace(
        job,
        name=request.name or job.name,
        workers=request.workers or job.workers,
        shards=request.shards or job.shards,
        recovery=recovery,
        replicas=job.replicas if request.replicas is None else request.replicas,
        sources=request.sources or job.sources,
        replicate=request.replicate or job.replicate,
        pull_slots=job.pull_slots if request.pull_slots is None else request.pull_slots,
        checkpoint=checkpoint,
    )


def run_training(request: TrainRequest) -> None:
    """Return when every worker has finished and the model is saved.

    Raises :class:`ConfigError` with the end of its log when a worker has failed.
    """
    if request.force and not request.resume:
        raise ConfigError(
            "--force takes a job away from another cluster to continue it", "Add --resume, or leave it out"
        )
    if request.init_from and request.resume:
        raise ConfigError(
            "--init-from is of a job that begins, and --resume goes on from its checkpoint",
            "Leave one of them out, or start another job by --name",
        )
    file = load_file(str(request.file), arguments=request.file_arguments)
    job = requested_job(request, file.job)
    screen = make_console()
    started = time.monotonic()
    with (
        stop_signal() as stop,
        closing(CallbackFeed(file.callbacks())) as feed,
        start_training(request, job, screen) as training,
    ):
        with open_display(screen) as display:
            commentary = Commentary(screen, training.observer, None if request.quiet else training.output)
            status, codes = _follow_training(display, commentary, training, feed, stop)
            failure = _worker_failure(training, codes)
            if codes and failure is None:
                status = await_saved(training, status, display, stop)
        if codes:
            training.end()
    if failure is not None:
        raise failure
    if not codes:
        screen.print(training.detached or stopped_text(status), soft_wrap=True)
        raise SystemExit(0 if training.detached else 1)
    if status.finished is None:
        screen.print(unsaved_text(status), soft_wrap=True)
        raise SystemExit(1)
    lines = finished_lines(status.finished, status, time.monotonic() - started, request.ref)
    screen.print(lines, soft_wrap=True)


def _follow_training(
    display: StatusDisplay,
    commentary: Commentary,
    training: FollowedTraining,
    feed: CallbackFeed,
    stop: Event,
) -> tuple[ClusterStatus, Mapping[str, int]]:
    """Show progress until all workers have ended, or one has failed.

    Returns the last look that had a loss, and exit codes by worker.
    """
    shown = ClusterStatus()
    losses = dict[int, float]()
    metrics = dict[int, Mapping[str, float]]()
    while not stop.is_set():
        # Workers first: the look that follows shows everything that those have done who had ended.
        workers = [process for process in training.processes() if process.component == "worker"]
        status = training.observer.read(since_clock=ask_from(losses))
        losses.update(status.losses)
        metrics.update(status.metrics)
        feed.take(status)
        if status.shards:
            shown = replace(status, losses=dict(losses), metrics=dict(metrics))
        display(shown, commentary.look(replace(status, losses=losses), workers))
        ended = {process.name: process.code or 0 for process in workers if process.final}
        if ended and (len(ended) == len(workers) or any(ended.values())):
            return shown, ended
        if training.lost():
            raise ConfigError("the cluster was stopped", "Start it by `scar up`, and continue by --resume")
        stop.wait(LOOK_SECONDS)
    return shown, {}


def _worker_failure(training: FollowedTraining, codes: Mapping[str, int]) -> ConfigError | None:
    """The first worker that has failed, with the end of its log, which may be gone with the cluster."""
    for name, code in codes.items():
        if code:
            reason = failure_reason(training.log(name), training.file)
            return ConfigError(
                f"{name} ended with exit code {code}\n{reason}", "Correct the file, and continue by --resume"
            )
    return None
