"""What each strategy promises beyond the guarantees that all of them keep (docs/strategies.md). Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scar.placement import Epoch, Source
from scar.tables import Job
from scar.v1.recovery_pb2 import FailureRecord
from scar_chaos.checkers import demand
from scar_chaos.history import History

CALM = 3  # clocks after which everybody has long followed an epoch, and what it moved is copied again


def kept(job: Job, epochs: Sequence[Epoch], ledger: Sequence[FailureRecord], past: History) -> None:
    """Raises :class:`scar_chaos.checkers.Violation` for a repair that the job's strategy does not allow."""
    by_number = {epoch.number: epoch for epoch in epochs}
    for record in ledger:
        epoch = by_number.get(record.epoch)
        if epoch is None or not record.lost_blocks:
            continue
        _rolled_back(job, record, epoch)
        whole = job.strategy.stores or (job.strategy.waits and set(record.sources) == {"replica"})
        if whole and _was_calm(epochs, record, past):
            _bounded(job, record, epoch)


def _rolled_back(job: Job, record: FailureRecord, epoch: Epoch) -> None:
    """All blocks together, or only those that were lost."""
    restored = sum(len(group.ids) for group in epoch.moved if group.source != Source.DONOR)
    expected = job.strategy.rollback or record.strategy == "ckpt"
    demand(epoch.rollback == expected, f"failure {record.number}: {record.strategy} and rollback {epoch.rollback}")
    if expected:
        demand(restored == job.blocks, f"failure {record.number}: {restored} of {job.blocks} blocks went back")


def _bounded(job: Job, record: FailureRecord, epoch: Epoch) -> None:
    """With the chain whole no more is lost than the period allows."""
    if job.strategy.exact:
        demand(not record.lost_pushes, f"failure {record.number}: {record.lost_pushes} acknowledged pushes are lost")
    if job.consistency == "bsp":
        back = max(int(record.clock) - group.clock for group in epoch.moved if group.source is Source.REPLICA)
        demand(back <= job.strategy.period + 1, f"failure {record.number}: a copy was {back} clocks old")


def _was_calm(epochs: Sequence[Epoch], record: FailureRecord, past: History) -> bool:
    """All workers had followed the last epoch that gave blocks to the dead, some clocks before."""
    gained = max(
        (epoch.number for epoch in epochs if epoch.number < record.epoch and _gained(epoch, record.members)), default=1
    )
    workers = {member.key for epoch in epochs if epoch.number == record.epoch - 1 for member in epoch.workers}
    for worker in workers:
        clocks = [pull.clock for pull in past.pulls if pull.worker == worker and pull.before >= gained]
        if not clocks or min(clocks) + CALM > record.clock:
            return False
    return True


def _gained(epoch: Epoch, members: Sequence[str]) -> bool:
    seats = [index for index in (epoch.shard_index(key) for key in members) if index >= 0]
    return any(bool(np.isin(epoch.owners[group.table][group.ids], seats).any()) for group in epoch.moved)
