"""The end of `scar train`: it says "finished" when the model as the workers left it is durable."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event

from rich.markup import escape

from scar.errors import ConfigError, DeadlineExceeded
from scar.v1.recovery_pb2 import FinishedRecord
from scar_admin.status import ClusterStatus
from scar_cli.cluster_ref import ClusterRef
from scar_cli.followed_training import FollowedTraining
from scar_cli.output import format_count, format_loss, format_seconds

LOOK_SECONDS = 0.1
PATIENCE_SECONDS = 600.0  # for the store to be there again
AGAIN = "Go on by --resume"

StatusDisplay = Callable[[ClusterStatus, tuple[str, ...]], None]


def await_saved(
    training: FollowedTraining, shown: ClusterStatus, display: StatusDisplay, stop: Event
) -> ClusterStatus:
    """Wait until the job is finished, after all workers have ended well. Returns the last look at it.

    ``shown``: the last look at the training; ``stop`` ends the wait. Raises :class:`ConfigError` when the
    workers left before their work was done or the cluster has stopped, and :class:`DeadlineExceeded`.
    """
    since = time.monotonic()
    status = ClusterStatus()
    while not stop.is_set():
        status = training.observer.read()
        if status.finished is not None:
            break
        waited = time.monotonic() - since
        _check_wait(status, shown.number, training.lost, waited)
        display(shown, (f"for {format_seconds(waited)}: {awaited_step(status)}",))
        stop.wait(LOOK_SECONDS)
    return status


def _check_wait(status: ClusterStatus, since: int, lost: Callable[[], bool], waited: float) -> None:
    """Raise when waiting for the end is without hope. ``since``: an epoch in which somebody worked."""
    if status.left_early(since):
        raise ConfigError(
            "all workers have ended before their work was done: they were stopped, or called exit(0)", AGAIN
        )
    if lost():
        raise ConfigError(
            f"the cluster was stopped: {unsaved_text(status)}",
            "Start it by `scar up`, and continue by --resume",
        )
    if waited > PATIENCE_SECONDS:
        raise DeadlineExceeded(
            unsaved_text(status), "See `scar doctor`; end it by `scar down` when the store is there again"
        )


def awaited_step(status: ClusterStatus) -> str:
    """What the end of a training waits for, in words."""
    if status.epoch is not None and status.epoch.workers and status.recovery is not None:
        return (
            f"the work is not done: {', '.join(member.name for member in status.epoch.workers)} still train"
        )
    return "; ".join(("the model to be saved", *status.problems))


def unsaved_text(status: ClusterStatus) -> str:
    """What is lost when nobody saves the model any more."""
    manifest = status.checkpoint.manifest if status.checkpoint else 0
    kept = (
        f"only checkpoint {manifest} is durable" if manifest else "no newer checkpoint is known to be durable"
    )
    return f"the training is over, but its model is not saved: {kept} ({awaited_step(status)})"


def stopped_text(status: ClusterStatus) -> str:
    """What to say after Ctrl-C: what was durable then, and how to go on."""
    saved = status.checkpoint.manifest if status.checkpoint else 0
    kept = f"checkpoint {saved} was the newest that is durable" if saved else "nothing was durable yet"
    return f"stopped at clock {status.clock}, {kept}; go on by the same command with --resume"


def finished_lines(record: FinishedRecord, status: ClusterStatus, took: float, ref: ClusterRef) -> str:
    """The result, where the model is, how to export it, and what a late failure took from it."""
    job = status.recovery.job if status.recovery else ""
    loss = format_loss(record.loss if record.HasField("loss") else None, record.loss_fraction or 1.0)
    result = (
        f"[bold green]finished[/] job {job}: {format_count(record.clock, 'clock')}, loss {loss}, "
        f"{format_count(len(status.failures), 'failure')} healed, {format_seconds(took)}"
    )
    where = f"[bold]saved[/] as manifest {record.manifest} in {escape(status.store)}"
    export = f"scar checkpoints export {job}.safetensors {record.manifest} --job {job}{ref.options()}"
    lines = [result, f"{where}; export it by `{export}`"]
    late = [
        str(failure.number) for failure in status.failures if record.number < failure.epoch <= record.epoch
    ]
    if late:
        lines.append(
            "[bold yellow]but[/] a shard died after the last clock, before the model was saved: some of it"
            f" is older, see failure {', '.join(late)} in `scar failures{ref.options()}`"
        )
    return "\n".join(lines)
