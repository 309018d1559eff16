"""What holds a training up, for how long, and what to do about it. Pure: one look at a cluster in, words out.

for wait in waits(status):
    print(wait.text)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scar.placement import Role
from scar.v1 import types_pb2, worker_pb2
from scar_admin.status import ClusterStatus

SLOW_SECONDS = 5.0  # after which a clock that does not end is worth a word
SLOW_CLOCKS = 5.0  # and it has to take so many times as long as others did
FIRST_SECONDS = 60.0  # a first clock, which may load data, is held for an error only then


@dataclass(frozen=True)
class Wait:
    """``seconds``: for how long; -1: nobody has measured it. ``step``: what to do. ``worker``: whose stack
    says more.

    ``wrong``: no training goes on like this.
    """

    text: str
    seconds: float = -1.0
    step: str = ""
    worker: str = ""
    wrong: bool = True


def waits(status: ClusterStatus) -> list[Wait]:
    """What is waited for, the most telling first. Empty without a job, and when it is finished."""
    if status.job is None or status.finished is not None:
        return []
    missing = _missing_members(status, status.job)
    covered = "recovery: " if missing and status.epoch is None else "\0"
    since = status.recovery.waiting if status.recovery else -1.0
    others = [
        Wait(problem, since if problem.startswith("recovery: ") else -1.0)
        for problem in status.problems
        if not problem.startswith(covered)
    ]
    return [*missing, *_late_workers(status), *others]


def _missing_members(status: ClusterStatus, job: types_pb2.JobSpec) -> list[Wait]:
    """Too few shards to begin with, too few workers for the first clock."""
    recovery = status.recovery
    epoch = status.epoch
    if recovery is not None and epoch is None:
        shards = sum(int(member.role) == Role.SHARD for member in recovery.members)
        step = (
            f"Start {job.shards - shards} more (`scar up --shards {job.shards}`; of a release:"
            f" ps.replicas={job.shards}, and all of its pods have to run), or train with --shards {shards}"
        )
        return (
            [Wait(f"{shards} of {job.shards} shards have joined", recovery.waiting, step)]
            if shards < job.shards
            else []
        )
    early = [one for one in status.workers.values() if one.state == "waiting"]
    if epoch is None or not early or not epoch.awaits_workers:
        return []
    text = (
        f"{len(epoch.workers)} of {job.workers} workers have joined:"
        f" {_join_names([one.member.name for one in early])}"
    )
    step = "Start the others; the log of one that has ended says why."
    if not status.clock:  # a job that is resumed is as it was declared
        step += f" Or train with --workers {len(epoch.workers)}"
    return [Wait(text, max(one.waited for one in early), step)]


def _late_workers(status: ClusterStatus) -> list[Wait]:
    """Those without whom the open clock does not close: they have finished the fewest, and take unusually
    long.
    """
    training = {name: one for name, one in status.workers.items() if one.state == "training"}
    lowest = min((one.clock for one in training.values()), default=0)
    late = {
        name: one
        for name, one in training.items()
        if one.clock == lowest and one.waited > _patience_with(one)
    }
    ahead = [
        name
        for name, one in status.workers.items()
        if one.state in ("training", "leaving") and one.clock > lowest
    ]
    idle = _join_names(ahead)
    return [
        Wait(
            f"{name} has not finished clock {one.clock}" + (f", {idle} wait for it" if idle else ""),
            one.waited,
            "Its stack says where it is; stop the training by Ctrl-C",
            name,
            one.seconds_per_clock > 0 or one.waited > FIRST_SECONDS,
        )
        for name, one in late.items()
    ]


def _patience_with(worker: worker_pb2.WorkerStatus) -> float:
    return max(SLOW_SECONDS, SLOW_CLOCKS * worker.seconds_per_clock)


def _join_names(names: Sequence[str]) -> str:
    return ", ".join(sorted(names))
