"""How `scar train` starts a training: on the cluster that runs, on one of its own, or on a release."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from scar.errors import ConfigError
from scar.job_start import start_job
from scar.tables import Job
from scar.v1.recovery_pb2_grpc import RecoveryStub
from scar.wire.transport import RECOVERY, open_channel
from scar_admin.observer import ClusterObserver
from scar_admin.status import ProcessInfo
from scar_cli.clusters import DirectTarget, find_release, read_status, running_cluster
from scar_cli.output import format_count
from scar_cli.requests import TrainRequest
from scar_kube.where import Where
from scar_local import LocalCluster
from scar_local.directory import default_directory
from scar_local.jobs import WorkerGroup
from scar_local.worker_output import WorkerOutput


@dataclass(frozen=True)
class FollowedTraining:
    """A training that has begun: how to look at it and at its workers."""

    observer: ClusterObserver
    processes: Callable[[], list[ProcessInfo]]
    log: Callable[[str], list[str]]  # of a worker
    file: str  # how a traceback of a worker names it
    lost: Callable[[], bool] = lambda: False  # the cluster has stopped meanwhile
    end: Callable[[], None] = lambda: None  # once all workers have ended
    output: WorkerOutput | None = None  # what workers print
    detached: str = ""  # what to say after Ctrl-C when the training goes on without us


def start_training(
    request: TrainRequest, job: Job, screen: Console
) -> AbstractContextManager[FollowedTraining]:
    target = running_cluster(request.ref.cluster) if request.ref.release is None else None
    if (request.store or request.redis) and (target or request.ref.release):
        raise ConfigError("the cluster runs with its own store and Redis", "Leave out --store and --redis")
    if request.ref.release is not None:
        return _train_on_release(request, request.ref.release, job, screen)
    if request.image:
        raise ConfigError("--image is for Kubernetes only", "Add --on kubernetes, or leave it out")
    return (
        _train_on_running(request, target, job, screen)
        if target is not None
        else _train_on_own_cluster(request, job, screen)
    )


@contextmanager
def _train_on_release(
    request: TrainRequest, where: Where, job: Job, screen: Console
) -> Iterator[FollowedTraining]:
    from scar_kube.training import Training as Remote
    from scar_kube.training import Work

    with find_release(where) as release:
        work = Work(
            replace(job, shards=request.shards or release.shards()),
            request.file,
            request.image,
            request.file_arguments,
        )
        remote = Remote(release, work)
        what = (
            "begins"
            if remote.begin(request.resume, take_over=request.force, waits=screen.print)
            else "runs already, and is followed"
        )
        _print_changes(screen, remote.changes)
        screen.print(
            f"job {job.name} {what} on {release}: {format_count(work.job.workers, 'worker')}", soft_wrap=True
        )
        detached = _detached_text(request, remote.name, release.namespace)
        with release.observer() as observer:
            yield FollowedTraining(
                observer, remote.processes, remote.log, f'/{work.key}"', end=remote.end, detached=detached
            )


def _detached_text(request: TrainRequest, stateful_set: str, namespace: str) -> str:
    """What to say after Ctrl-C, which only ends the look at the training."""
    return (
        "detached: the training goes on. Come back by the same command, look by `scar"
        f" watch{request.ref.options()}`, stop it by `kubectl delete statefulset {stateful_set}"
        f" --namespace {namespace}`"
    )


@contextmanager
def _train_on_running(
    request: TrainRequest, target: DirectTarget, job: Job, screen: Console
) -> Iterator[FollowedTraining]:
    assert target.directory is not None
    assert target.state is not None
    _check_free(target)
    with (
        WorkerGroup(target.directory, replace(target.state, job=job.name)) as group,
        target.observer() as observer,
    ):
        with open_channel(target.recovery, RECOVERY) as channel:
            changes = start_job(
                RecoveryStub(channel), job, request.resume, take_over=request.force, waits=screen.print
            )
        _print_changes(screen, changes)
        screen.print(
            f"job {job.name} on cluster {request.ref.cluster!r}: {format_count(job.workers, 'worker')};"
            f" see it by `scar console{request.ref.options()}`",
            soft_wrap=True,
        )
        group.start(request.file.absolute(), job.name, job.workers, request.file_arguments)
        logs = target.directory / "logs"
        yield FollowedTraining(
            observer,
            group.processes,
            partial(_read_log, logs),
            str(request.file.absolute()),
            target.ended,
            output=WorkerOutput(logs),
        )


@contextmanager
def _train_on_own_cluster(request: TrainRequest, job: Job, screen: Console) -> Iterator[FollowedTraining]:
    home = default_directory(request.ref.cluster)
    with LocalCluster(
        home, shards=job.shards, store=request.store or None, redis=request.redis or None
    ) as cluster:
        changes = cluster.start_job(job, request.resume, take_over=request.force, waits=screen.print)
        _print_changes(screen, changes)
        screen.print(
            f"job {job.name} on a cluster of its own: {format_count(job.shards, 'shard')},"
            f" {format_count(job.workers, 'worker')}; logs in {home / 'logs'}; see it by"
            f" `scar console{request.ref.options()}`",
            soft_wrap=True,
        )
        cluster.start_workers(request.file, job.workers, request.file_arguments)
        with ClusterObserver(cluster.endpoints.recovery_address) as observer:
            logs = home / "logs"
            yield FollowedTraining(
                observer,
                cluster.processes,
                partial(_read_log, logs),
                str(request.file.absolute()),
                output=WorkerOutput(logs),
            )


def _print_changes(screen: Console, changes: str) -> None:
    if changes:
        screen.print(f"settings changed: {escape(changes)}", soft_wrap=True)


def _check_free(target: DirectTarget) -> None:
    """Workers of two trainings would have the same names, and fence each other off."""
    workers = read_status(target).workers
    if workers:
        raise ConfigError(
            f"{', '.join(workers)} are training on this cluster",
            "Wait for their end, or use another one by --cluster NAME",
        )


def _read_log(folder: Path, worker: str) -> list[str]:
    """Its records, then what it has printed."""
    found: list[str] = []
    for kind in ("log", "out"):
        with suppress(OSError):
            found += (folder / f"{worker}.{kind}").read_text(errors="replace").splitlines()
    return found
