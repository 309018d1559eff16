"""A training on a real cluster of processes, in which servers are killed by SIGKILL.

Losses are those that a user sees; times are those of the wall clock.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from scar.errors import DeadlineExceeded, Internal
from scar.tables import Job
from scar.wire.epoch_messages import epoch_from_proto
from scar_admin.status import ask_from
from scar_local import ClusterStatus, LocalCluster
from scar_runtime.failure_records import FailureRecord
from scar_runtime.store.failure_codec import failure_from_proto

ROOT = Path(__file__).resolve().parents[1]
WORKERS = 2
SHARDS = 4
LOOK_SECONDS = 0.05
LOG_CHARACTERS = 2000  # of a broken worker's log that are shown
SETTLE_SECONDS = 1.0  # for the round of the last clock
PAUSE_AT = "SCAR_EXPERIMENT_PAUSE_AT"
PAUSE_SECONDS = "SCAR_EXPERIMENT_PAUSE_SECONDS"


@dataclass(frozen=True)
class ClusterTrainingPlan:
    """What is trained, and which servers die when.

    ``file``: a training file, from the repository's root. ``kill_at``: clocks after which ``victims``
    die; 0: none.

    ``pause``: workers wait after those clocks, so that the failure finds them between two of them and the
    round is over.
    """

    file: str
    job: Job
    kill_at: int = 0
    victims: Sequence[str] = ("ps-0", "ps-1")
    pause: bool = False
    environment: dict[str, str] = field(default_factory=dict)
    seconds: float = 600.0  # a run that takes longer is broken


@dataclass(frozen=True)
class ClusterTrainingResult:
    """What was seen of a training.

    ``losses`` by clock, not a number for one without a loss; ``ends``: seconds from the end of the first
    clock to that of each.

    ``lost_blocks``: that the victims owned; ``killed_at``: clocks that were closed when they died, 0: they
    did not. ``failures``: the ledger.
    """

    losses: list[float]
    ends: list[float]
    lost_blocks: int
    killed_at: int
    failures: tuple[FailureRecord, ...] = ()


def train_on_cluster(
    plan: ClusterTrainingPlan, enough: Callable[[list[float]], bool]
) -> ClusterTrainingResult:
    """Train until ``enough(losses)``.

    Raises a :class:`scar.errors.ScarError` when something fails that was not meant to.
    """
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {"PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1", **plan.environment}
    if plan.pause:
        environment |= {PAUSE_AT: str(plan.kill_at), PAUSE_SECONDS: str(4 * SETTLE_SECONDS)}
    with (
        tempfile.TemporaryDirectory(prefix="scar-experiment-") as home,
        LocalCluster(home, shards=SHARDS, environment=environment) as cluster,
    ):
        cluster.start_job(plan.job)
        cluster.until(lambda status: len(status.shards) == SHARDS, plan.seconds, "the servers")
        cluster.start_workers(ROOT / plan.file, WORKERS)
        trained = _follow_training(cluster, plan, enough)
        failures = tuple(map(failure_from_proto, cluster.status().failures))
        cluster.stop(checkpoint=False)
    return replace(trained, failures=failures)


def _follow_training(
    cluster: LocalCluster, plan: ClusterTrainingPlan, enough: Callable[[list[float]], bool]
) -> ClusterTrainingResult:
    known: dict[int, float] = {}
    losses: list[float] = []
    ends: list[float] = []
    lost = killed = 0
    deadline = time.monotonic() + plan.seconds
    while not enough(losses):
        status = cluster.status(since_clock=ask_from(known))
        known |= status.losses
        losses = replace(status, losses=known).losses_from(0)
        ends += [time.monotonic()] * (len(losses) - len(ends))
        if plan.kill_at and not killed and status.clock >= plan.kill_at:
            lost = _kill_victims(cluster, plan, status)
            killed = status.clock
        _check_cluster(cluster, status, plan, deadline)
        time.sleep(LOOK_SECONDS)
    return ClusterTrainingResult(losses, [end - ends[0] for end in ends], lost, killed)


def _kill_victims(cluster: LocalCluster, plan: ClusterTrainingPlan, status: ClusterStatus) -> int:
    """SIGKILL to the victims; returns how many blocks they owned."""
    if status.epoch is None:
        raise Internal("the cluster has no placement")
    if plan.pause:
        time.sleep(SETTLE_SECONDS)
    for victim in plan.victims:
        cluster.kill(victim)
    epoch = epoch_from_proto(status.epoch)
    keys = [member.key for member in epoch.shards if member.name in plan.victims]
    return sum(len(ids) for key in keys for ids in epoch.owned_by(key).values())


def _check_cluster(
    cluster: LocalCluster, status: ClusterStatus, plan: ClusterTrainingPlan, deadline: float
) -> None:
    broken = [
        process for process in cluster.processes() if process.name.startswith("worker-") and process.code
    ]
    if broken:
        log = cluster.directory / "logs" / f"{broken[0].name}.log"  # gone with the cluster
        raise Internal(
            f"{broken[0].name} ended with exit code {broken[0].code}",
            log.read_text(errors="replace")[-LOG_CHARACTERS:],
        )
    if time.monotonic() > deadline:
        raise DeadlineExceeded(
            f"the training did not end within {plan.seconds:g} s", "; ".join(status.problems)
        )
