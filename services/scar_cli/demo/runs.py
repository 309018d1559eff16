"""One training of the demo on a fresh cluster of real processes: start, watch, kill, watch it heal, take the figures.

The figures come from where a user reads them, too: losses from the shards' Status, times and lost pushes from the recovery
coordinator's ledger, values through the SDK.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import scar
from scar.blocks import Ids
from scar.codec import epoch_from_proto
from scar.errors import DeadlineExceeded, Internal
from scar.training import load_job
from scar.v1 import recovery_pb2
from scar_cli.demo.report import Failure, Run
from scar_cli.demo.strike import Blow, Strike
from scar_cli.demo.tally import Witness, final_tally
from scar_local import ClusterStatus, LocalCluster

TRAIN_FILE = Path(__file__).with_name("train.py")
SHARDS, WORKERS = 4, 2
RUN_SECONDS = 80.0  # a run that takes longer is broken
LEDGER_SECONDS = 5.0
LOOK_SECONDS = 0.2


@dataclass(frozen=True)
class Plan:
    """What is special about one run."""

    name: str
    checkpoint: scar.Checkpoint
    recovery: str
    kill: bool


PRIORITY = scar.Checkpoint("priority", fraction=1 / 8, period=8)
PLANS = (
    Plan("no failure", PRIORITY, "partial", kill=False),
    Plan("partial recovery", PRIORITY, "partial", kill=True),
    Plan("full recovery", scar.Checkpoint("full", period=8), "full", kill=True),
)


@dataclass(frozen=True)
class Setting:
    """What all runs share. ``victims`` get SIGKILL when ``kill_at`` iterations are complete."""

    directory: Path
    dataset: str
    epsilon: float
    seed: int
    kill_at: int
    victims: Sequence[str]


@dataclass(frozen=True)
class Progress:
    """How far a run is; ``event`` says what just happened, or is empty."""

    iterations: int
    loss: float | None = None
    event: str = ""


Tell = Callable[[Progress], None]


def carry_out(plan: Plan, setting: Setting, tell: Tell) -> Run:
    """Train once. Raises a :class:`scar.errors.ScarError` when the cluster, a worker or a deadline fails."""
    home = setting.directory / plan.name.replace(" ", "-")
    shutil.rmtree(home, ignore_errors=True)
    started = time.monotonic()
    job, _ = load_job(str(TRAIN_FILE))
    job = replace(job, seed=setting.seed, checkpoint=plan.checkpoint, recovery=plan.recovery)
    environment = {"SCAR_DEMO_DATA": setting.dataset, "SCAR_DEMO_EPSILON": repr(setting.epsilon)}
    with LocalCluster(home, shards=SHARDS, environment=environment) as cluster:
        cluster.start_job(job)
        first = cluster.until(lambda status: len(status.shards) == SHARDS, RUN_SECONDS, "the servers")
        cluster.start_workers(TRAIN_FILE, WORKERS)
        losses, blow, went_back = _train(cluster, plan, setting, first, tell)
        seconds = time.monotonic() - started
        records = _ledger(cluster)
        tally = final_tally(cluster.recovery_address, records, WORKERS, len(losses), went_back)
    failures = [_failure(record) for record in records]
    return Run(plan.name, losses, tally, seconds, blow.kills, failures, blow.pause_seconds)


def _train(
    cluster: LocalCluster, plan: Plan, setting: Setting, first: ClusterStatus, tell: Tell
) -> tuple[list[float], Blow, int]:
    """Follow the training to its end. Returns the losses by iteration, the kill, and how many blocks were seen to go back."""
    survivors = _owners(first, () if not plan.kill else setting.victims)
    witness = Witness(cluster.recovery_address, np.sort(np.concatenate(list(survivors.values()))))
    with _helpers() as (pool, stop):
        helpers: list[Future[None]] = [pool.submit(witness.watch, stop)]
        strike = Strike(cluster, cluster.shard(next(iter(survivors))), setting.victims, setting.kill_at)
        if plan.kill:
            helpers.append(pool.submit(strike.carry_out, stop, lambda event: tell(Progress(setting.kill_at, event=event))))
        losses = _follow(cluster, helpers, tell)
    for helper in helpers:
        helper.result()
    return losses, strike.blow, witness.went_back


@contextmanager
def _helpers() -> Iterator[tuple[ThreadPoolExecutor, threading.Event]]:
    """Two threads, and the event that ends them: it is set on every way out, else leaving would wait for ever."""
    stop = threading.Event()
    with ThreadPoolExecutor(2, thread_name_prefix="demo") as pool:
        try:
            yield pool, stop
        finally:
            stop.set()


def _owners(status: ClusterStatus, without: Sequence[str]) -> Mapping[str, Ids]:
    """Blocks of the tally by shard name, for the shards that are going to survive."""
    if status.epoch is None:
        raise Internal("the cluster has no placement")
    epoch = epoch_from_proto(status.epoch)
    return {member.name: epoch.owned("tally", index) for index, member in enumerate(epoch.shards) if member.name not in without}


def _follow(cluster: LocalCluster, helpers: Sequence[Future[None]], tell: Tell) -> list[float]:
    """Look until both workers have ended well; the losses by iteration."""
    losses: list[float] = []
    repaired = 0
    deadline = time.monotonic() + RUN_SECONDS
    while True:
        ended = _ended(cluster)  # asked before the last look, so that the look sees everything
        status = cluster.status(since_clock=len(losses))
        losses += status.losses_from(len(losses))
        done = [record for record in status.failures if record.epoch and record.load_seconds]
        event = f"{sum(record.lost_blocks for record in done[repaired:])} blocks recovered" if len(done) > repaired else ""
        repaired = len(done)
        tell(Progress(len(losses), losses[-1] if losses else None, event))
        for helper in helpers:
            if helper.done():
                helper.result()
        if ended:
            return losses
        if time.monotonic() > deadline:
            raise DeadlineExceeded(f"the training did not end within {RUN_SECONDS:g} s", "; ".join(status.problems))
        time.sleep(LOOK_SECONDS)


def _ended(cluster: LocalCluster) -> bool:
    """Whether every worker has finished. Raises :class:`Internal` when one has failed."""
    workers = [process for process in cluster.processes() if process.name.startswith("worker-")]
    for process in workers:
        if process.code:
            log = cluster.directory / "logs" / f"{process.name}.log"
            raise Internal(f"{process.name} ended with exit code {process.code}", f"See {log}")
    return all(process.code == 0 for process in workers)


def _ledger(cluster: LocalCluster) -> list[recovery_pb2.FailureRecord]:
    """The records of the ledger, complete as far as they become so in a few seconds."""
    deadline = time.monotonic() + LEDGER_SECONDS
    while True:
        records = list(cluster.recovery.ListFailures(recovery_pb2.ListFailuresRequest(), timeout=LEDGER_SECONDS).failures)
        if not any(record.waiting or not record.epoch for record in records) or time.monotonic() > deadline:
            return records
        time.sleep(LOOK_SECONDS)


def _failure(record: recovery_pb2.FailureRecord) -> Failure:
    return Failure(
        detect_seconds=record.detect_seconds,
        recover_seconds=record.wait_seconds + record.commit_seconds + record.load_seconds,
        lost_blocks=record.lost_blocks,
        delta_norm=record.delta_norm,
        lost_pushes=record.lost_pushes,
    )
