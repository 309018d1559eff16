"""Reported losses: each is the sum of a whole set of shares, recomputed from what the workers pulled.

Before the first recovery that was not exact it is that of an undisturbed twin, to the bit.

A worker's part (see ``workload.py``) is the sum of the first table's blocks in its share. They are integers,
so that sums are exact in any order; and random, so that no partial sum looks like a whole one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from scar.losses import LossPoint
from scar.placement import BlockSource, Epoch
from scar.tables import Job
from scar_chaos.oracles.history import History, ShareRecord, TableValues
from scar_chaos.oracles.violation import require

UNDER_WAY = 2  # clocks of which the marks may not be everywhere when a failure comes
CALM = 3  # clocks after which a job that is well has losses again
NEVER = 1 << 62

LossesByShard = Sequence[Mapping[int, LossPoint]]  # by clock, of each shard


def check_losses(
    job: Job, epochs: Sequence[Epoch], history: History, initial: TableValues, losses: LossesByShard
) -> None:
    """Raises :class:`Violation` for a loss that is partial, differs between shards, or is missing."""
    found = _agreed_losses(losses)
    _check_sums(job, history, found)
    twin = _undisturbed_losses(job, epochs, history, initial)
    for clock in sorted(twin.keys() & found.keys()):
        point = found[clock]
        require(
            point == LossPoint(clock, twin[clock]), f"clock {clock}: {point}, without a failure {twin[clock]}"
        )
    _check_complete(twin, losses)
    if losses and not job.strategy.queues:
        _check_newest(epochs, history, losses)


def _agreed_losses(losses: LossesByShard) -> dict[int, LossPoint]:
    """Clock -> loss, which is the same on every shard that has it."""
    found: dict[int, LossPoint] = {}
    for points in losses:
        for clock, point in points.items():
            other = found.setdefault(clock, point)
            require(
                point == other, f"the loss of clock {clock} is {other} on one shard and {point} on another"
            )
    return found


def _check_sums(job: Job, history: History, losses: Mapping[int, LossPoint]) -> None:
    """Each loss is the sum of shares that make up the fraction of the data that it names."""
    table = job.tables[0]
    pulled = {(pull.worker, pull.clock): pull.values for pull in history.pulls if pull.table == table.name}
    by_clock: dict[int, list[ShareRecord]] = {}
    for share in history.shares:
        by_clock.setdefault(share.clock, []).append(share)
    drops = job.worker_strategy.seat and not job.worker_strategy.waits
    for clock, point in losses.items():
        known = [share for share in by_clock.get(clock, []) if (share.worker, clock) in pulled]
        parts = {share: _part(share, pulled[share.worker, clock]) for share in known}
        choices = _whole_sets(known, round(point.fraction * table.blocks))
        sums = [sum(parts[share] for share in shares) for shares in choices]
        require(point.fraction == 1 or drops, f"the loss of clock {clock} is of {point.fraction} of the data")
        require(
            point.loss in sums,
            f"the loss of clock {clock} is {point.loss}; whole sets of shares sum up to {sums}, parts are"
            f" {parts}",
        )


def _part(share: ShareRecord, values: np.ndarray) -> float:
    return float(values[share.first : share.last].sum())


def _whole_sets(
    shares: Sequence[ShareRecord], blocks: int, taken: int = 0
) -> Iterator[tuple[ShareRecord, ...]]:
    """Choices of shares that do not overlap and have this many blocks, at most one of each worker.

    ``taken``: blocks below are taken already.
    """
    if blocks == 0:
        yield ()
    ordered = sorted(shares)
    for index, share in enumerate(ordered):
        size = share.last - share.first
        if share.first < taken or not 0 < size <= blocks:
            continue
        others = [one for one in ordered[index + 1 :] if one.worker_name != share.worker_name]
        for rest in _whole_sets(others, blocks - size, share.last):
            yield (share, *rest)


def _undisturbed_losses(
    job: Job, epochs: Sequence[Epoch], history: History, initial: TableValues
) -> dict[int, float]:
    """Clock -> loss of a run of the same pushes in which nothing fails; only before anything has."""
    if job.consistency != "bsp":
        return {}
    name = job.tables[0].name
    disturbed, left = _first_disturbance(job, epochs)
    pulls = [pull for pull in history.pulls if pull.table == name]
    end = min((pull.clock for pull in pulls if pull.after >= disturbed), default=NEVER)
    for worker in left:  # the epoch may come long after it has gone: the store may be away
        end = min(end, max((pull.clock for pull in pulls if pull.worker == worker), default=0))
    clocks = sorted({pull.clock for pull in pulls if pull.clock < end})
    pushes = sorted((push for push in history.pushes if push.table == name), key=lambda push: push.clock)
    values = initial[name].astype(np.int64).copy()
    found = {}
    applied = 0
    for clock in clocks:
        while applied < len(pushes) and pushes[applied].clock < clock:
            values[pushes[applied].ids] += pushes[applied].amount
            applied += 1
        found[clock] = float(values.sum())
    return found


def _first_disturbance(job: Job, epochs: Sequence[Epoch]) -> tuple[int, set[str]]:
    """Number of the first epoch after which losses need not be those of the twin, and keys of the workers
    that are not in it any more.
    """
    previous: Epoch | None = None
    for epoch in epochs:
        if _disturbs(job, previous, epoch):
            if previous is None:
                return epoch.number, set()
            return epoch.number, {worker.key for worker in previous.workers if worker not in epoch.workers}
        previous = epoch
    return NEVER, set()


def _disturbs(job: Job, old: Epoch | None, new: Epoch) -> bool:
    """A value is not as it was before, somebody died, or a worker came or went in the middle of the work."""
    restored = any(group.source is not BlockSource.DONOR for group in new.moved if old or group.clock)
    if new.failure or new.rollback or restored:
        return True
    workers = set(old.workers) if old else set()
    joined = len(workers) >= job.workers and set(new.workers) > workers
    left = bool(workers - set(new.workers))
    fenced = old is not None and bool(set(new.fenced) - set(old.fenced))
    return joined or left or fenced


def _check_complete(twin: Mapping[int, float], losses: LossesByShard) -> None:
    """No loss is missing: who was there from the first clock on knows all up to the first failure."""
    sure = max(twin, default=0) - UNDER_WAY
    for points in losses:
        if 0 not in points:
            continue
        end = min(sure, max(points))
        missing = [clock for clock in twin if clock <= end and clock not in points]
        require(not missing, f"a shard has no loss of clocks {missing}, and nothing had failed")


def _check_newest(epochs: Sequence[Epoch], history: History, losses: LossesByShard) -> None:
    """A healed job has new losses. Where all have died and the job went back to an older state, clocks of
    those who have died are done again.
    """
    newest = max((clock for points in losses for clock in points), default=-1)
    living = {member.key for epoch in epochs[-1:] for member in epoch.workers} & history.acknowledged.keys()
    counted = living or history.acknowledged.keys()
    reached = max((history.acknowledged[worker] for worker in counted), default=0)
    require(
        newest >= reached - 1 - CALM,
        f"the newest loss is of clock {newest}, and all workers have finished {reached} clocks",
    )
