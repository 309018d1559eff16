"""What a group of faults cost, from the ledger, the epochs and the workers' history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from scar.placement import BlockSource, Epoch
from scar.tables import Job
from scar.v1.recovery_pb2 import FailureRecord
from scar_chaos.oracles.history import History

WINDOW = 1.0  # seconds after a fault that are looked at, at least: a clock takes 0.05 s


@dataclass(frozen=True)
class FaultCost:
    """What one group of faults cost. Seconds; -1: nothing of that kind happened, or was measured.

    ``detect``: from a member's last sign of life to its report; ``recover``: from there until all of its
    blocks are served; the longest of each. ``throughput``: clocks of surviving workers in that time (at least
    a second from the first fault), as a part of what they do undisturbed. ``rework``: clocks by which the
    restored blocks went back, as a mean over all blocks of the job. ``lost_pushes``: acknowledged, gone, and
    in the ledger.
    """

    failures: int = 0
    detect: float = -1.0
    recover: float = -1.0
    throughput: float = -1.0
    rework: float = 0.0
    lost_blocks: int = 0
    lost_pushes: int = 0
    resent_pushes: int = 0


def measure_cost(
    job: Job,
    epochs: Sequence[Epoch],
    failures: Sequence[FailureRecord],
    history: History,
    struck: float,
    calm: float,
) -> FaultCost:
    """``epochs``, ``failures``: since the first fault, which came at ``struck`` (monotonic seconds).

    ``calm``: clocks a second of one worker when nothing is broken.
    """
    detect = max((record.detect_seconds for record in failures), default=-1.0)
    recover = max((_recover_seconds(record) for record in failures), default=-1.0)
    window = max(WINDOW, max(0.0, detect) + recover)
    return FaultCost(
        failures=len(failures),
        detect=detect,
        recover=recover,
        throughput=clock_rate(history, struck, struck + window) / calm if calm > 0 else -1.0,
        rework=measure_rework(job, epochs, failures),
        lost_blocks=sum(record.lost_blocks for record in failures),
        lost_pushes=sum(record.lost_pushes for record in failures),
        resent_pushes=sum(record.resent_pushes for record in failures),
    )


def _recover_seconds(record: FailureRecord) -> float:
    phases = (record.wait_seconds, record.commit_seconds, record.load_seconds)
    return sum(max(0.0, one) for one in phases)


def worker_lives(history: History) -> dict[str, int]:
    """Worker -> how many incarnations it had: 1 when it was never restarted."""
    return dict(Counter(worker.partition("@")[0] for worker in sorted(history.started_at)))


def measure_rework(job: Job, epochs: Sequence[Epoch], failures: Sequence[FailureRecord]) -> float:
    """Clocks of work that restored blocks lost, as a mean over all blocks.

    The ledger knows which clock was open then.
    """
    clocks = {record.epoch: record.clock for record in failures}
    lost = 0
    for epoch in epochs:
        if epoch.number not in clocks:
            continue
        for group in epoch.moved:
            if group.source != BlockSource.DONOR:
                lost += max(0, clocks[epoch.number] - group.clock) * len(group.ids)
    return lost / job.blocks


def clock_rate(history: History, begin: float, end: float) -> float:
    """Clocks a second of one worker between two monotonic times.

    Those count that had begun before and lived on after.
    """
    last = {worker: at for at, worker, _ in history.opened}
    alive = [worker for worker, at in history.started_at.items() if at <= begin and last[worker] >= end]
    opened = sum(worker in alive and begin < at <= end for at, worker, _ in history.opened)
    return opened / len(alive) / (end - begin) if alive else 0.0
