"""`scar train FILE`: on the cluster that runs, on one that lives as long as the training, or on a release on Kubernetes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Event

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from scar.errors import ConfigError
from scar.strategies import find_strategy
from scar.tables import Job
from scar.training import load_job
from scar.transport import RECOVERY, connect
from scar.v1.recovery_pb2_grpc import RecoveryStub
from scar_cli.chart import draw
from scar_cli.clusters import Target, find_release, look, running
from scar_cli.output import console, number, seconds
from scar_cli.places import Place
from scar_cli.up import stop_signal
from scar_kube.where import Where
from scar_local import LocalCluster
from scar_local.directory import default_directory
from scar_local.jobs import WorkerGroup
from scar_runtime.jobs import start_job
from scar_runtime.status import ClusterStatus, Observer, ProcessInfo

LOOK_SECONDS = 0.3
PLAIN_SECONDS = 2.0  # between two lines when the output is no terminal
CURVE_WIDTH = 24
LAST_LINES = 12  # of the log of a worker that failed


@dataclass(frozen=True)
class Plan:
    """What `scar train` was asked for."""

    file: Path
    place: Place
    workers: int | None = None
    shards: int | None = None
    name: str = ""
    resume: bool = False
    store: str = ""
    redis: str = ""
    image: str = ""
    strategy: str = ""
    replicas: int | None = None

    def job(self) -> Job:
        """The file's job with what the command line changes. A strategy that rolls back gets the checkpoints that it needs."""
        job, _ = load_job(str(self.file))
        workers, shards = self.workers or job.workers, self.shards or job.shards
        replicas = job.replicas if self.replicas is None else self.replicas
        recovery, checkpoint = self.strategy or job.recovery, job.checkpoint
        if self.strategy and find_strategy(recovery).rollback:
            checkpoint = replace(checkpoint, selection="full")
        name = self.name or job.name
        return replace(
            job, name=name, workers=workers, shards=shards, recovery=recovery, replicas=replicas, checkpoint=checkpoint
        )


@dataclass(frozen=True)
class Training:
    """A training that has begun: how to look at it and at its workers."""

    observer: Observer
    processes: Callable[[], list[ProcessInfo]]
    log: Callable[[str], list[str]]  # of a worker
    file: str  # how a traceback of a worker names it
    lost: Callable[[], bool] = lambda: False  # the cluster has stopped meanwhile
    end: Callable[[], None] = lambda: None  # once all workers have ended
    detached: str = ""  # what to say after Ctrl-C when the training goes on without us


def run(plan: Plan) -> None:
    """Returns when every worker has finished. Raises :class:`ConfigError` with the log's end when one has failed."""
    job, screen, started = plan.job(), console(), time.monotonic()
    with stop_signal() as stop, _begun(plan, job, screen) as training:
        status, codes = _follow(screen, training, stop)
        failed = next((name for name, code in codes.items() if code), "")
        reason = _reason(training.log(failed), training.file) if failed else ""
        if codes:
            training.end()
    if not codes:
        screen.print(training.detached or "stopped; go on by the same command with --resume", soft_wrap=True)
        raise SystemExit(0 if training.detached else 1)
    if failed:
        raise ConfigError(f"{failed} ended with exit code {codes[failed]}\n{reason}", "Mend the file, and go on by --resume")
    screen.print(
        f"[bold green]finished[/] job {job.name}: {status.clock} clocks, loss {number(status.loss)}, "
        f"{len(status.failures)} failures healed, {seconds(time.monotonic() - started)}"
    )


def _begun(plan: Plan, job: Job, screen: Console) -> AbstractContextManager[Training]:
    target = running(plan.place.cluster) if plan.place.release is None else None
    if (plan.store or plan.redis) and (target or plan.place.release):
        raise ConfigError("the cluster runs with its own store and Redis", "Leave out --store and --redis")
    if plan.place.release is not None:
        return _on_release(plan, plan.place.release, job, screen)
    if plan.image:
        raise ConfigError("--image is for Kubernetes only", "Add --on kubernetes, or leave it out")
    return _on_running(plan, target, job, screen) if target is not None else _on_its_own(plan, job, screen)


@contextmanager
def _on_release(plan: Plan, where: Where, job: Job, screen: Console) -> Iterator[Training]:
    from scar_kube.training import Training as Remote
    from scar_kube.training import Work

    with find_release(where) as release:
        work = Work(replace(job, shards=plan.shards or release.shards()), plan.file, plan.image)
        remote = Remote(release, work)
        what = "begins" if remote.begin(plan.resume) else "runs already, and is followed"
        screen.print(f"job {job.name} {what} on {release}: {work.job.workers} workers", soft_wrap=True)
        detached = (
            f"detached: the training goes on. Come back by the same command, look by `scar watch{plan.place.options()}`, "
            f"stop it by `kubectl delete statefulset {remote.name} --namespace {release.namespace}`"
        )
        with release.observer() as observer:
            yield Training(observer, remote.processes, remote.log, f'/{work.key}"', end=remote.end, detached=detached)


@contextmanager
def _on_running(plan: Plan, target: Target, job: Job, screen: Console) -> Iterator[Training]:
    assert target.directory is not None
    assert target.state is not None
    _check_free(target)
    with WorkerGroup(target.directory, replace(target.state, job=job.name)) as group, target.observer() as observer:
        _start_job(target.recovery, job, plan.resume)
        screen.print(f"job {job.name} on cluster {plan.place.cluster!r}: {job.workers} workers")
        group.start(plan.file.absolute(), job.name, job.workers)
        log = partial(_log, target.directory / "logs")
        yield Training(observer, group.processes, log, str(plan.file.absolute()), target.ended)


@contextmanager
def _on_its_own(plan: Plan, job: Job, screen: Console) -> Iterator[Training]:
    home = default_directory(plan.place.cluster)
    with LocalCluster(home, shards=job.shards, store=plan.store or None, redis=plan.redis or None) as cluster:
        cluster.start_job(job, resume=plan.resume)
        screen.print(
            f"job {job.name} on a cluster of its own: {job.shards} shards, {job.workers} workers; logs in {home / 'logs'}"
        )
        cluster.start_workers(plan.file, job.workers)
        with Observer(cluster.recovery_address) as observer:
            yield Training(observer, cluster.processes, partial(_log, home / "logs"), str(plan.file.absolute()))


def _start_job(recovery: str, job: Job, resume: bool) -> None:
    with connect(recovery, RECOVERY) as channel:
        start_job(RecoveryStub(channel), job, resume)


def _check_free(target: Target) -> None:
    """Workers of two trainings would have the same names, and fence each other off."""
    workers = look(target).workers
    if workers:
        raise ConfigError(
            f"{', '.join(workers)} are training on this cluster", "Wait for their end, or use another one by --cluster NAME"
        )


def _follow(screen: Console, training: Training, stop: Event) -> tuple[ClusterStatus, Mapping[str, int]]:
    """Show progress until all workers have ended; returns the last look that had a loss, and exit codes by name."""
    shown, losses = ClusterStatus(), dict[int, float]()
    with _display(screen) as display:
        while not stop.is_set():
            # Workers first: the look that follows shows everything that those have done who had ended.
            workers = [process for process in training.processes() if process.component == "worker"]
            status = training.observer.read(since_clock=max(losses, default=0))
            losses.update(status.losses)
            if status.shards:
                shown = replace(status, losses=dict(losses))
            display(shown, status.problems)
            if workers and all(process.final for process in workers):
                return shown, {process.name: process.code or 0 for process in workers}
            if training.lost():
                raise ConfigError("the cluster was stopped", "Start it by `scar up`, and go on by --resume")
            stop.wait(LOOK_SECONDS)
    return shown, {}


@contextmanager
def _display(screen: Console) -> Iterator[Callable[[ClusterStatus, tuple[str, ...]], None]]:
    """One moving line on a terminal, a line every now and then elsewhere."""
    if not screen.is_terminal:
        yield _Lines(screen).show
        return
    columns = (SpinnerColumn(), TextColumn("{task.fields[text]}"), TimeElapsedColumn())
    with Progress(*columns, console=screen, transient=True) as progress:
        task = progress.add_task("", total=None, text="starting")
        yield lambda status, problems: progress.update(task, text=line(status, problems))


class _Lines:
    def __init__(self, screen: Console) -> None:
        self._screen = screen
        self._next = 0.0
        self._failures = 0

    def show(self, status: ClusterStatus, problems: tuple[str, ...]) -> None:
        now = time.monotonic()
        if status.number and (now >= self._next or len(status.failures) != self._failures):
            self._next, self._failures = now + PLAIN_SECONDS, len(status.failures)
            self._screen.print(line(status, problems, curve=False), soft_wrap=True)


def line(status: ClusterStatus, problems: tuple[str, ...] = (), curve: bool = True) -> str:
    """What a training looks like in one line."""
    parts = [f"clock {status.clock}", f"loss {number(status.loss)}"]
    if curve and status.losses:
        parts[1] += " " + draw([status.losses[clock] for clock in sorted(status.losses)], CURVE_WIDTH, 1)[0]
    if status.checkpoint and status.checkpoint.manifest:
        parts.append(f"checkpoint {status.checkpoint.manifest}")
    if status.failures:
        parts.append(f"{len(status.failures)} failures")
    if status.loading:
        parts.append(f"recovering {status.loading} blocks")
    return " · ".join(parts) + (f" · waiting: {problems[0]}" if problems else "")


def _log(folder: Path, worker: str) -> list[str]:
    try:
        return (folder / f"{worker}.log").read_text(errors="replace").splitlines()
    except OSError as error:
        return [str(error)]


def _reason(lines: list[str], file: str) -> str:
    """Why a worker failed: the user's part of its traceback, else the end of its log."""
    for line in reversed(lines):
        with suppress(ValueError, TypeError, KeyError):
            trace = json.loads(line)["traceback"].splitlines()
            first = next((number for number, entry in enumerate(trace) if file in entry), 0)
            return "\n".join(trace[first:])
    return "\n".join(lines[-LAST_LINES:])
