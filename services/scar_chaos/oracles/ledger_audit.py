"""The ledger against the truth: who lost how much, how old is what came back, how far from what was lost.

The truth is what workers saw and wrote down, who owned what in the epochs, and what the objects hold that an
epoch names.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product

import numpy as np

from scar.placement import END, BlockSource, Epoch
from scar.tables import Job
from scar.v1.recovery_pb2 import FailureRecord
from scar_chaos.core.counting_job import pushed_elements
from scar_chaos.oracles.history import History, PullRecord, ReturnedBlocks
from scar_chaos.oracles.violation import require

CLOSE = 1e-6  # relative: norms are summed in float64 in another order


def audit_ledger(
    job: Job,
    epochs: Sequence[Epoch],
    ledger: Sequence[FailureRecord],
    history: History,
    returned: Sequence[ReturnedBlocks],
) -> Iterator[Callable[[], None]]:
    """Yield checks; each raises :class:`Violation` for one thing that a record says and that is not so.

    ``returned``: of the groups that epochs put back those whose objects could still be read.
    """
    by_number = {epoch.number: epoch for epoch in epochs}
    for record in ledger:
        yield partial(_check_closed, record)
        epoch = by_number.get(record.epoch)
        if epoch is None or not record.lost_blocks:
            continue
        yield partial(_check_counts, record, epoch, epochs)
        yield partial(_check_clock, job, record, by_number, history)
        if job.consistency == "bsp":
            blocks = [one for one in returned if one.epoch == epoch.number]
            yield partial(_check_age, blocks, history)
            yield partial(_check_delta, job, record, blocks, history)


def _check_closed(record: FailureRecord) -> None:
    """When all is well nobody is waited for any more."""
    require(bool(record.epoch), f"failure {record.number} has no epoch that repaired it")
    require(
        not record.waiting,
        f"failure {record.number} still waits for the report of {', '.join(record.waiting)}",
    )


def _check_counts(record: FailureRecord, epoch: Epoch, epochs: Sequence[Epoch]) -> None:
    """Lost is what the dead owned when they were members last, and what nobody had, since it was damaged."""
    owned = sum(len(group.ids) for group in epoch.moved if not group.former_owner)
    for key in record.members:
        owned += _owned_at_last(key, [one for one in epochs if one.number < epoch.number])
    text = (
        f"failure {record.number}: {record.lost_blocks} blocks lost, and {', '.join(record.members)} owned"
        f" {owned}"
    )
    require(record.lost_blocks == owned, text)
    moved: Counter[str] = Counter()
    for group in epoch.moved:
        moved[group.source.name.lower()] += len(group.ids)
    found = {source: count for source, count in record.sources.items() if count}
    require(
        found == dict(moved),
        f"failure {record.number}: sources {found}, and epoch {epoch.number} has {dict(moved)}",
    )


def _owned_at_last(key: str, epochs: Sequence[Epoch]) -> int:
    """Blocks of this shard in the newest of these epochs of which it was a member."""
    member_of = [epoch for epoch in epochs if epoch.shard_index(key) >= 0]
    if not member_of:
        return 0
    last = max(member_of, key=lambda epoch: epoch.number)
    return _count_owned(last, key)


def _count_owned(epoch: Epoch, key: str) -> int:
    return sum(len(ids) for ids in epoch.owned_by(key).values())


def _check_clock(job: Job, record: FailureRecord, by_number: Mapping[int, Epoch], history: History) -> None:
    """The clock of a failure is no older than what came back, and than what a survivor had served by then.

    Else its staleness would be called too small.
    """
    moved = by_number[record.epoch].moved
    saved = max((group.clock for group in moved if group.source is not BlockSource.DONOR), default=0)
    text = f"failure {record.number} says clock {record.clock}, and clock {saved} came back"
    require(record.clock >= saved, text)
    if job.consistency == "asp":
        return
    told = _survivors_with_blocks(record, by_number)
    owning = [{number for number, epoch in by_number.items() if _count_owned(epoch, key)} for key in told]
    # what only the dead had served may have gone back to what was saved
    served_by_them = [
        pull.clock
        for pull in history.pulls
        if pull.after < record.epoch and any({pull.before, pull.after} <= numbers for numbers in owning)
    ]
    served = max(served_by_them, default=0) - job.slack
    text = f"failure {record.number} says clock {record.clock}, and clock {served} was open before its epoch"
    require(record.clock >= served, text)


def _survivors_with_blocks(record: FailureRecord, by_number: Mapping[int, Epoch]) -> set[str]:
    """Shards with blocks that lived through the failure, and so told their clock.

    Sure is that only of those that are members still, when the cluster is well: others may have been dead,
    too, and found out later, after whatever epochs came between.
    """
    before = by_number.get(record.epoch - 1)
    if before is None:
        return set()
    newest = by_number[max(number for number, epoch in by_number.items() if epoch.cause != END)]
    repaired = {shard.key for shard in by_number[record.epoch].shards}
    return {shard.key for shard in newest.shards if shard.key in repaired and _count_owned(before, shard.key)}


def _check_age(returned: Sequence[ReturnedBlocks], history: History) -> None:
    """BSP: blocks of clock c are as every worker saw them that pulled at clock c."""
    for one in returned:
        group = one.group
        seen = [
            pull
            for pull in history.pulls
            if pull.table == group.table and pull.clock == group.clock and pull.after < one.epoch
        ]
        if group.source is not BlockSource.OBJECT or not seen:
            continue
        fits = np.any([pull.values[group.ids] == one.values for pull in seen], axis=0)
        wrong = group.ids[~fits].tolist()
        require(
            not wrong,
            f"{group.object_key}: blocks {wrong} of table {group.table} are not those of clock {group.clock}",
        )


def _check_delta(
    job: Job, record: FailureRecord, returned: Sequence[ReturnedBlocks], history: History
) -> None:
    """An exact ||delta|| is the distance from what one of the workers had pulled last to what came back."""
    restored = sum(count for source, count in record.sources.items() if source != "donor")
    if not record.delta_exact or sum(len(one.group.ids) for one in returned) < restored:
        return
    tables = sorted({one.group.table for one in returned})
    options = [
        _squared_distances(job, [one for one in returned if one.group.table == table], history)
        for table in tables
    ]
    if not all(options):
        return  # no worker had pulled yet
    norms = {math.sqrt(sum(chosen)) for chosen in product(*options)}
    near = any(math.isclose(record.delta_norm, norm, rel_tol=CLOSE, abs_tol=CLOSE) for norm in norms)
    recomputed = ", ".join(f"{norm:.6g}" for norm in sorted(norms)[:4])
    require(
        near,
        f"failure {record.number} says ||delta|| = {record.delta_norm:.6g}; recorded values make it"
        f" {recomputed}",
    )


def _squared_distances(job: Job, returned: Sequence[ReturnedBlocks], history: History) -> set[float]:
    """||restored - pulled||^2 of one table, for each worker's last pulls before it followed the epoch."""
    table = job.table(returned[0].group.table)
    epoch = returned[0].epoch
    ids = np.concatenate([one.group.ids for one in returned])
    values = np.concatenate([one.values for one in returned]).astype(np.float64)
    found = set()
    for pull in _last_pulls(history, table.name, epoch):
        far = pull.values[ids].astype(np.float64) - values
        found.add(float((far * far * pushed_elements(table)[ids]).sum()))
    return found


def _last_pulls(history: History, table: str, epoch: int) -> Iterator[PullRecord]:
    """What each worker may have held when it followed this epoch: a pull may end at that very moment."""
    series: dict[str, list[PullRecord]] = {}
    for pull in history.pulls:
        if pull.table == table and pull.before < epoch:
            series.setdefault(pull.worker, []).append(pull)
    for pulls in series.values():
        yield from pulls[-2:]
