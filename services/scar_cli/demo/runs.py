"""One training of the demo on a fresh cluster of real processes: start, watch, kill, recover, measure.

The figures come from where a user reads them, too: losses from the shards' Status, times and lost pushes from
the recovery coordinator's ledger, values through the SDK.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

import scar
from scar.blocks import Ids
from scar.errors import DeadlineExceeded, Internal
from scar.jobfile import load_job
from scar.v1 import recovery_pb2
from scar.wire.epoch_messages import epoch_from_proto
from scar_admin.status import ask_from
from scar_cli.demo.report import DemoFailure, DemoRun
from scar_cli.demo.server_kill import KillOutcome, ServerKiller
from scar_cli.demo.tally import RegressionWatcher, final_tally
from scar_local import ClusterStatus, LocalCluster
from scar_runtime.store.failure_codec import recovery_seconds
from scar_runtime.store.failure_log import list_failures

TRAIN_FILE = Path(__file__).with_name("train.py")
SHARDS = 4
WORKERS = 2
RUN_SECONDS = 80.0  # a run that takes longer is broken
LEDGER_SECONDS = 20.0
LOOK_SECONDS = 0.2


ShowCluster = Callable[[LocalCluster | None], None]


@dataclass(frozen=True)
class DemoPlan:
    """What is special about one run."""

    name: str
    checkpoint: scar.Checkpoint
    recovery: str
    kill: bool


PRIORITY = scar.Checkpoint("priority", fraction=1 / 8, period=8)
PLANS = (
    DemoPlan("no failure", PRIORITY, "partial", kill=False),
    DemoPlan("partial recovery", PRIORITY, "partial", kill=True),
    DemoPlan("full recovery", scar.Checkpoint("full", period=8), "full", kill=True),
)


@dataclass(frozen=True)
class DemoSetting:
    """What all runs share. ``victims`` get SIGKILL when ``kill_at`` iterations are complete.

    ``show`` is told of each cluster once it runs, and by None when it is going to end.
    """

    directory: Path
    dataset: str
    epsilon: float
    seed: int
    kill_at: int
    victims: Sequence[str]
    show: ShowCluster


@dataclass(frozen=True)
class DemoProgress:
    """How far a run is; ``event`` says what just happened, or is empty."""

    iterations: int
    loss: float | None = None
    event: str = ""


TellProgress = Callable[[DemoProgress], None]


def run_plan(plan: DemoPlan, setting: DemoSetting, tell: TellProgress) -> DemoRun:
    """Train once. Raises a :class:`scar.errors.ScarError` when the cluster, a worker or a deadline fails."""
    name = plan.name.replace(" ", "-")
    home = setting.directory / name
    shutil.rmtree(home, ignore_errors=True)
    started = time.monotonic()
    job, _ = load_job(str(TRAIN_FILE))
    job = replace(job, name=name, seed=setting.seed, checkpoint=plan.checkpoint, recovery=plan.recovery)
    environment = {"SCAR_DEMO_DATA": setting.dataset, "SCAR_DEMO_EPSILON": repr(setting.epsilon)}
    with LocalCluster(home, shards=SHARDS, environment=environment) as cluster:
        cluster.start_job(job)
        setting.show(cluster)
        first = cluster.until(lambda status: len(status.shards) == SHARDS, RUN_SECONDS, "the servers")
        cluster.start_workers(TRAIN_FILE, WORKERS)
        losses, outcome, went_back = _train_and_kill(cluster, plan, setting, first, tell)
        seconds = time.monotonic() - started
        records = _read_ledger(cluster)
        tally = final_tally(cluster.endpoints.recovery_address, records, WORKERS, len(losses), went_back)
        setting.show(None)
    failures = [_failure_figures(record) for record in records]
    return DemoRun(plan.name, losses, tally, seconds, outcome.kills, failures, outcome.pause_seconds)


def _train_and_kill(
    cluster: LocalCluster, plan: DemoPlan, setting: DemoSetting, first: ClusterStatus, tell: TellProgress
) -> tuple[list[float], KillOutcome, int]:
    """Follow the training to its end.

    Returns the losses by iteration, the kill, and how many blocks were seen to go back.
    """
    survivors = _surviving_owners(first, () if not plan.kill else setting.victims)
    watcher = RegressionWatcher(
        cluster.endpoints.recovery_address, np.sort(np.concatenate(list(survivors.values())))
    )
    with _helper_threads() as (pool, stop):
        helpers: list[Future[None]] = [pool.submit(watcher.watch_blocks, stop)]
        killer = ServerKiller(
            cluster, cluster.endpoints.shard(next(iter(survivors))), setting.victims, setting.kill_at
        )
        if plan.kill:
            helpers.append(
                pool.submit(
                    killer.kill_at_clock, stop, lambda event: tell(DemoProgress(setting.kill_at, event=event))
                )
            )
        losses = _follow_losses(cluster, helpers, tell)
    for helper in helpers:
        helper.result()
    return losses, killer.outcome, watcher.went_back


@contextmanager
def _helper_threads() -> Iterator[tuple[ThreadPoolExecutor, threading.Event]]:
    """Two threads, and the event that ends them.

    It is set on every way out; without it leaving would wait forever.
    """
    stop = threading.Event()
    with ThreadPoolExecutor(2, thread_name_prefix="demo") as pool:
        try:
            yield pool, stop
        finally:
            stop.set()


def _surviving_owners(status: ClusterStatus, without: Sequence[str]) -> Mapping[str, Ids]:
    """Blocks of the tally by shard name, for the shards that are going to survive."""
    if status.epoch is None:
        raise Internal("the cluster has no placement")
    epoch = epoch_from_proto(status.epoch)
    return {
        member.name: epoch.owned("tally", index)
        for index, member in enumerate(epoch.shards)
        if member.name not in without
    }


def _follow_losses(cluster: LocalCluster, helpers: Sequence[Future[None]], tell: TellProgress) -> list[float]:
    """Look until both workers have ended well; the losses by iteration."""
    known: dict[int, float] = {}
    repaired = 0
    deadline = time.monotonic() + RUN_SECONDS
    while True:
        ended = _workers_ended(cluster)  # asked before the last look, so that the look sees everything
        status = cluster.status(since_clock=ask_from(known))
        known |= status.losses
        losses = replace(status, losses=known).losses_from(0)
        done = [record for record in status.failures if record.epoch and record.load_seconds]
        event = (
            f"{sum(record.lost_blocks for record in done[repaired:])} blocks recovered"
            if len(done) > repaired
            else ""
        )
        repaired = len(done)
        tell(DemoProgress(len(losses), losses[-1] if losses else None, event))
        for helper in helpers:
            if helper.done():
                helper.result()
        if ended:
            return losses
        if time.monotonic() > deadline:
            raise DeadlineExceeded(
                f"the training did not end within {RUN_SECONDS:g} s", "; ".join(status.problems)
            )
        time.sleep(LOOK_SECONDS)


def _workers_ended(cluster: LocalCluster) -> bool:
    """Whether every worker has finished. Raises :class:`Internal` when one has failed."""
    workers = [process for process in cluster.processes() if process.name.startswith("worker-")]
    for process in workers:
        if process.code:
            log = cluster.directory / "logs" / f"{process.name}.log"
            raise Internal(f"{process.name} ended with exit code {process.code}", f"See {log}")
    return all(process.code == 0 for process in workers)


def _read_ledger(cluster: LocalCluster) -> list[recovery_pb2.FailureRecord]:
    """The records of the ledger, complete as far as they become so in a few seconds."""
    deadline = time.monotonic() + LEDGER_SECONDS
    while True:
        records = list_failures(
            partial(cluster.endpoints.recovery.ListFailures, timeout=LEDGER_SECONDS), lost=True
        )
        if not any(record.waiting or not record.epoch for record in records) or time.monotonic() > deadline:
            return records
        time.sleep(LOOK_SECONDS)


def _failure_figures(record: recovery_pb2.FailureRecord) -> DemoFailure:
    return DemoFailure(
        detect_seconds=record.detect_seconds,
        recover_seconds=recovery_seconds(record),
        lost_blocks=record.lost_blocks,
        delta_norm=record.delta_norm,
        lost_pushes=record.lost_pushes,
    )
