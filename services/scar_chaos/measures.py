"""What a group of faults cost, from the ledger, the epochs and the workers' history. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from scar.placement import Epoch, Source
from scar.tables import Job
from scar.v1.recovery_pb2 import FailureRecord
from scar_chaos.history import History

WINDOW = 1.0  # seconds after a strike that are looked at, at least: a clock takes 0.05 s


@dataclass(frozen=True)
class Cost:
    """Seconds; -1: nothing of that kind happened.

    ``detect``: from a member's last sign of life to its report; ``recover``: from there until all of its blocks are served; the
    longest of each. ``throughput``: clocks of surviving workers in that time (at least a second from the strike), as a part of
    what they do undisturbed. ``rework``: clocks by which the restored blocks went back, as a mean over all blocks of the job.
    ``lost_pushes``: acknowledged, gone, and in the books.
    """

    failures: int = 0
    detect: float = -1.0
    recover: float = -1.0
    throughput: float = -1.0
    rework: float = 0.0
    lost_blocks: int = 0
    lost_pushes: int = 0
    resent_pushes: int = 0


def cost(
    job: Job, epochs: Sequence[Epoch], failures: Sequence[FailureRecord], past: History, struck: float, calm: float
) -> Cost:
    """``epochs``, ``failures``: since the strike. ``struck``: monotonic seconds. ``calm``: clocks a second of one worker."""
    detect = max((record.detect_seconds for record in failures), default=-1.0)
    recover = max((max(0.0, r.wait_seconds) + r.commit_seconds + max(0.0, r.load_seconds) for r in failures), default=-1.0)
    window = max(WINDOW, detect + recover)
    return Cost(
        failures=len(failures),
        detect=detect,
        recover=recover,
        throughput=pace(past, struck, struck + window) / calm if calm > 0 else -1.0,
        rework=rework(job, epochs, failures),
        lost_blocks=sum(record.lost_blocks for record in failures),
        lost_pushes=sum(record.lost_pushes for record in failures),
        resent_pushes=sum(record.resent_pushes for record in failures),
    )


def lives(past: History) -> dict[str, int]:
    """Worker -> how many incarnations it had: 1 when it was never restarted."""
    return dict(Counter(worker.partition("@")[0] for worker in sorted(past.begun)))


def rework(job: Job, epochs: Sequence[Epoch], failures: Sequence[FailureRecord]) -> float:
    """Clocks of work that restored blocks lost, as a mean over all blocks. The ledger knows which clock was open then."""
    clocks = {record.epoch: record.clock for record in failures}
    restored = [
        (epoch, group) for epoch in epochs if epoch.number in clocks for group in epoch.moved if _restores(group.source)
    ]
    return sum(max(0, clocks[epoch.number] - group.clock) * len(group.ids) for epoch, group in restored) / job.blocks


def _restores(source: Source) -> bool:
    return source != Source.DONOR


def pace(past: History, begin: float, end: float) -> float:
    """Clocks a second of one worker between two monotonic times, over those that had begun before and lived on after."""
    last = {worker: at for at, worker, _ in past.opened}
    alive = [worker for worker, at in past.begun.items() if at <= begin and last[worker] >= end]
    opened = sum(worker in alive and begin < at <= end for at, worker, _ in past.opened)
    return opened / len(alive) / (end - begin) if alive else 0.0
