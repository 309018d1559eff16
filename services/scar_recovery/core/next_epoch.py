"""What the next epoch has to be, from everything that is pending. Pure; when it is due says the planner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from scar.placement import END, Epoch, Member
from scar.tables import Job
from scar_recovery.core.epoch_intent import (
    EpochIntent,
    FrozenTransfer,
    GlobalIds,
    RollbackRequest,
    blocks_owned_by,
    rank_order,
    rank_seats,
    rewinds_workers,
)
from scar_recovery.core.membership import MemberFailure
from scar_recovery.core.rendezvous import awaits_workers, lacks_workers


@dataclass(frozen=True)
class PendingChanges:
    """Everything that waits for an epoch.

    ``moved`` None: no move has ended; else its transfers, perhaps none; ``levels_traffic``: of hot blocks.
    ``departures``, ``finished``: member keys. ``shards``, ``workers``: that wait;
    ``admit_without_survivors``: such shards need not wait for more of them. ``loaded``: every shard of
    ``epoch`` has all its blocks. ``former``: keys of workers of the run before, when a run has begun since
    ``epoch``; None: none has. ``rollback``: that a worker has asked for.
    """

    author: str
    job: Job
    epoch: Epoch
    newest_failure: int
    failures: tuple[MemberFailure, ...] = ()
    moved: tuple[FrozenTransfer, ...] | None = None
    levels_traffic: bool = False
    shards: tuple[Member, ...] = ()
    workers: tuple[Member, ...] = ()
    admit_without_survivors: bool = False
    departures: frozenset[str] = frozenset()
    finished: frozenset[str] = frozenset()
    orphans: Mapping[str, GlobalIds] = field(default_factory=dict)
    orphan_failure: int = 0
    damage: Mapping[str, GlobalIds] = field(default_factory=dict)
    failed_senders: frozenset[str] = frozenset()
    loaded: bool = False
    former: frozenset[str] | None = None
    rollback: RollbackRequest | None = None

    @property
    def dead(self) -> frozenset[str]:
        """Keys of members that leave by dying."""
        return frozenset(failure.key for failure in self.failures)


def owned_count(epoch: Epoch | None, key: str) -> int:
    """Blocks that a shard owns."""
    return 0 if epoch is None else sum(len(ids) for ids in epoch.owned_by(key).values())


def first_epoch(author: str, job: Job, shards: Sequence[Member], workers: Sequence[Member]) -> EpochIntent:
    return EpochIntent(
        number=1,
        author=author,
        job=job,
        previous=None,
        shards=rank_order(shards),
        workers=rank_order(workers),
        cause="start",
        awaits_workers=lacks_workers(job, workers),
    )


def leader_epoch(pending: PendingChanges) -> EpochIntent:
    """A new leader's own first epoch: same placement, nothing dropped. What is pending comes right after."""
    epoch = pending.epoch
    nobody_dies = replace(pending, failures=())
    return _make_intent(nobody_dies, "leader", epoch.shards, epoch.workers, left=frozenset())


def last_epoch(pending: PendingChanges) -> EpochIntent:
    """Nobody is in it.

    Its shards are fenced, so that one that sleeps through it cannot serve afterwards.
    """
    epoch = pending.epoch
    fenced = (*epoch.fenced, *(member.incarnation for member in epoch.shards))
    return EpochIntent(
        number=epoch.number + 1,
        author=pending.author,
        job=pending.job,
        previous=epoch,
        shards=(),
        workers=(),
        cause=END,
        fenced=fenced,
        orphans=dict(pending.orphans),
        finished=epoch.finished,
    )


def next_epoch(pending: PendingChanges) -> EpochIntent:
    """The next epoch with all that is pending: deaths, a finished move, arrivals, departures."""
    job = pending.job
    epoch = pending.epoch
    dead = pending.dead
    moved = () if dead or pending.rollback else pending.moved or ()
    emptied = _emptied_shards(pending, moved)
    staying = [member for member in epoch.shards if member.key not in dead | emptied]
    admitted = pending.shards if staying or pending.admit_without_survivors else ()
    rewinds = rewinds_workers(job, epoch, staying, dead)
    damaged = blocks_owned_by(job, epoch, staying, pending.damage.values())
    asked = pending.rollback if staying or admitted else None
    restores = rewinds or bool(damaged) or asked is not None
    cause = _cause(pending, moved, emptied, admitted, restores)
    shards = rank_order([*staying, *admitted])
    workers = rank_order(_next_workers(pending))
    return replace(
        _make_intent(pending, cause, shards, workers, left=pending.departures),
        moved=moved,
        damaged=damaged,
        damage=tuple(pending.damage) if damaged else (),
        failed_senders=pending.failed_senders,
        failure=_failure_number(pending, restores, bool(admitted)),
        asked=asked,
    )


def _next_workers(pending: PendingChanges) -> list[Member]:
    gone = pending.dead | pending.departures
    return [*(member for member in pending.epoch.workers if member.key not in gone), *pending.workers]


def _cause(
    pending: PendingChanges,
    moved: Sequence[FrozenTransfer],
    emptied: frozenset[str],
    admitted: Sequence[Member],
    restores: bool,
) -> str:
    if restores or _loses_shard(pending):
        return "failure"
    if pending.orphans and admitted:
        return "failure" if pending.orphan_failure else "resume"
    if emptied or any(done.transfer.donor.key in pending.departures for done in moved):
        return "leave"
    if admitted or pending.moved is None:
        return "join" if admitted else "workers"
    return "traffic" if pending.levels_traffic else "join"


def _loses_shard(pending: PendingChanges) -> bool:
    return any(member.key in pending.dead for member in pending.epoch.shards)


def _loses_worker(pending: PendingChanges) -> bool:
    return any(member.key in pending.dead for member in pending.epoch.workers)


def _failure_number(pending: PendingChanges, restores: bool, admits: bool) -> int:
    """Number of the failure record that this epoch belongs to; 0: none. Nobody dies without one."""
    costs = restores or _loses_shard(pending)
    if not costs and admits and pending.orphans and pending.orphan_failure:
        return pending.orphan_failure
    return pending.newest_failure + 1 if costs or _loses_worker(pending) else 0


def _make_intent(
    pending: PendingChanges,
    cause: str,
    shards: tuple[Member, ...],
    workers: tuple[Member, ...],
    left: frozenset[str],
) -> EpochIntent:
    epoch = pending.epoch
    seats = rank_seats(pending.job, epoch, workers, left)
    return EpochIntent(
        number=epoch.number + 1,
        author=pending.author,
        job=pending.job,
        previous=epoch,
        shards=shards,
        workers=workers,
        cause=cause,
        dead=tuple(sorted(pending.dead)),
        fenced=(*epoch.fenced, *(failure.report.member.incarnation for failure in pending.failures)),
        avoid=pending.departures,
        orphans=dict(pending.orphans),
        restoring=_restoring_manifests(pending),
        seats=seats,
        finished=_finishing_epoch(pending, workers, seats),
        awaits_workers=awaits_workers(pending.job, epoch, workers, pending.former),
    )


def _restoring_manifests(pending: PendingChanges) -> tuple[int, ...]:
    """Manifests from which shards may still be loading."""
    if pending.loaded:
        return ()
    return tuple(sorted({*pending.epoch.restoring, pending.epoch.manifest} - {0}))


def _finishing_epoch(pending: PendingChanges, workers: Sequence[Member], seats: Sequence[str]) -> int:
    """Epoch with which the last workers left, their work done; 0: somebody works, or is awaited."""
    epoch = pending.epoch
    if workers or (seats and pending.job.worker_strategy.waits):
        return 0
    if not epoch.workers:
        return epoch.finished
    all_done = {member.key for member in epoch.workers} <= pending.finished - pending.dead
    return epoch.number + 1 if all_done else 0


def _emptied_shards(pending: PendingChanges, moved: Sequence[FrozenTransfer]) -> frozenset[str]:
    """Shards that want to leave and own nothing once ``moved`` is done."""
    emptied = set()
    for key in pending.departures:
        given = sum(
            len(ids)
            for done in moved
            if done.transfer.donor.key == key
            for ids in done.transfer.blocks.values()
        )
        if pending.epoch.shard_index(key) >= 0 and owned_count(pending.epoch, key) == given:
            emptied.add(key)
    return frozenset(emptied)
