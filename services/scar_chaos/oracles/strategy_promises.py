"""What each strategy promises beyond the guarantees that all of them keep (docs/strategies.md)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scar.placement import BlockSource, Epoch
from scar.strategies import rolls_back
from scar.tables import Job
from scar.v1.recovery_pb2 import FailureRecord
from scar.wire.lost_pushes import unpack_losses
from scar_chaos.oracles.history import History
from scar_chaos.oracles.violation import require

CALM = 3  # clocks after which everybody has long followed an epoch, and what it moved is copied again


def check_promises(
    job: Job, epochs: Sequence[Epoch], ledger: Sequence[FailureRecord], history: History
) -> None:
    """Raises :class:`Violation` for a repair that the job's strategy does not allow."""
    by_number = {epoch.number: epoch for epoch in epochs}
    for record in ledger:
        epoch = by_number.get(record.epoch)
        if epoch is None or not record.lost_blocks:
            continue
        _check_rollback(job, record, epoch)
        chained = job.strategy.waits and not job.strategy.missing and set(record.sources) == {"replica"}
        whole = job.strategy.stores or chained
        gained = _last_gain(epochs, record)
        if whole and not record.damage and _was_calm(epochs, record, history, gained):
            _check_bounds(job, record, epoch, _lost_in_gap(job, record, history, gained))
        if _was_healed(job, record) and not record.damage:
            # what the last death took away has been copied anew some clocks later
            since = record.epoch - 1 if job.strategy.missing else gained
            if _was_calm(epochs, record, history, since):
                text = f"failure {record.number}: {record.lost_pushes} acknowledged pushes are lost"
                require(not record.lost_pushes, f"{text} with a shard that workers healed")


def _was_healed(job: Job, record: FailureRecord) -> bool:
    """All blocks came from workers, or from replicas that have exactly what workers lack."""
    exact = {"worker", "replica"} if job.strategy.missing else {"worker"}
    return job.strategy.asks_workers and bool(record.sources) and set(record.sources) <= exact


def _check_rollback(job: Job, record: FailureRecord, epoch: Epoch) -> None:
    """All blocks go back together, or only those that were lost."""
    restored = sum(len(group.ids) for group in epoch.moved if group.source != BlockSource.DONOR)
    expected = job.strategy.rollback or rolls_back(record.strategy)
    require(
        epoch.rollback == expected,
        f"failure {record.number}: {record.strategy} and rollback {epoch.rollback}",
    )
    if expected:
        require(
            restored == job.blocks, f"failure {record.number}: {restored} of {job.blocks} blocks went back"
        )


def _check_bounds(job: Job, record: FailureRecord, epoch: Epoch, lost_in_gap: bool) -> None:
    """With the chain whole no more is lost than the period allows."""
    if job.strategy.exact:
        require(
            not record.lost_pushes or lost_in_gap,
            f"failure {record.number}: {record.lost_pushes} acknowledged pushes are lost",
        )
    if job.consistency == "bsp":
        copies = [group for group in epoch.moved if group.source is BlockSource.REPLICA]
        oldest = max(int(record.clock) - group.clock for group in copies)
        require(oldest <= job.strategy.period + 1, f"failure {record.number}: a copy was {oldest} clocks old")


def _last_gain(epochs: Sequence[Epoch], record: FailureRecord) -> int:
    """The last epoch that gave blocks to the dead."""
    earlier = [epoch for epoch in epochs if epoch.number < record.epoch]
    return max((epoch.number for epoch in earlier if _gained_blocks(epoch, record.members)), default=1)


def _was_calm(epochs: Sequence[Epoch], record: FailureRecord, history: History, gained: int) -> bool:
    """All workers had followed epoch ``gained`` some clocks before the failure was answered."""
    workers = {member.key for epoch in epochs if epoch.number == record.epoch - 1 for member in epoch.workers}
    followed = (_first_clock(history, worker, gained) for worker in workers)
    return all(clock is not None and clock + CALM <= record.clock for clock in followed)


def _lost_in_gap(job: Job, record: FailureRecord, history: History, gained: int) -> bool:
    """All that is lost was pushed about when the dead gained blocks in epoch ``gained``, before they were
    copied again. That the dead had died then the clock of the record does not tell: workers may go on while a
    death is noticed and answered. Where nothing is acknowledged before it is stored, what was pushed before
    has waited for an owner until then (simulated seed 4772).
    """
    waited = job.strategy.stores
    for report in record.lost:
        first = _first_clock(history, report.worker, gained)
        pushes = [push for push in history.pushes if push.worker == report.worker]
        for loss in map(unpack_losses, report.lost):
            clocks = [
                push.clock
                for push in pushes
                if any(after < push.number <= upto for after, upto in loss.ranges)
            ]
            if not clocks:
                return False
            if first is not None and max(_distance(clock - first, waited) for clock in clocks) >= CALM:
                return False
    return bool(record.lost)


def _distance(clocks: int, waited: bool) -> int:
    return clocks if waited else abs(clocks)


def _first_clock(history: History, worker: str, epoch: int) -> int | None:
    """In which this worker pulled after it had followed this epoch."""
    clocks = (pull.clock for pull in history.pulls if pull.worker == worker and pull.before >= epoch)
    return min(clocks, default=None)


def _gained_blocks(epoch: Epoch, members: Sequence[str]) -> bool:
    """Whether this epoch gave blocks to one of them."""
    seats = [index for index in (epoch.shard_index(key) for key in members) if index >= 0]
    return any(bool(np.isin(epoch.owners[group.table][group.ids], seats).any()) for group in epoch.moved)
