"""Exactly once: every block is x(0) plus each acknowledged push that is not reported lost."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, combinations

import numpy as np

from scar.blocks import Ids
from scar.lost_ranges import LostRanges
from scar.placement import BlockSource, Epoch
from scar.tables import Job
from scar.v1.recovery_pb2 import FailureRecord
from scar.wire.lost_pushes import unpack_losses
from scar_chaos.oracles.history import History, PushRecord, TableValues

# worker, and how many certain pushes of its came before: pushes with none of these in between; or minus the
# number of a push that is alone
UncertainRun = tuple[str, int]
PushKey = tuple[str, int]  # worker, number of the push
MOST_SUMS = 1 << 18  # of half of the stretches of a block; with more almost any value could be explained


class ReportedLoss:
    """Which (push, block) pairs the ledger calls lost.

    Every worker reports to the ledger that follows the epoch of a recovery. One that was gone by then cannot:
    what it pushed at the clock of a restored group or later may be in it or not, and is *unsure*. So is,
    beyond the watermark, what a worker pushed that died before anybody saw it follow the epoch, or before its
    report was taken, which may wait for the store.

    ``newest_epochs``: the newest epoch in which each worker was seen.
    """

    def __init__(
        self,
        ledger: Iterable[FailureRecord],
        epochs: Sequence[Epoch] = (),
        newest_epochs: Mapping[str, int] | None = None,
    ) -> None:
        records = list(ledger)
        self._ranges: dict[tuple[str, str], list[LostRanges]] = {}
        self._told = {(record.number, report.worker) for record in records for report in record.reports}
        for report in (report for record in records for report in record.lost):
            for loss in map(unpack_losses, report.lost):
                self._ranges.setdefault((report.worker, loss.table), []).append(loss)
        self._restored = [
            (epoch, group)
            for epoch in epochs
            if epoch.number > 1
            for group in epoch.moved
            if group.source != BlockSource.DONOR
        ]
        self.epochs = epochs
        self._first = {member.key: epoch.number for epoch in reversed(epochs) for member in epoch.workers}
        self._last = {member.key: epoch.number for epoch in epochs for member in epoch.workers}
        self.newest = epochs[-1].number if epochs else 0
        self._newest_epochs = dict(newest_epochs or {})

    def has_left(self, worker: str) -> bool:
        """Whether it is in no epoch any more."""
        return self._last.get(worker, self.newest) < self.newest

    def lost_blocks(self, push: PushRecord) -> Ids:
        """Blocks for which this push is lost."""
        ranges = self._ranges.get((push.worker, push.table), [])
        return _union([one.ids[(one.after < push.number) & (push.number <= one.upto)] for one in ranges])

    def moved_blocks(self, push: PushRecord) -> Ids:
        """Blocks of its table that an epoch has moved since its worker came."""
        first = self._first.get(push.worker, self.newest)
        later = [epoch for epoch in self.epochs if epoch.number > first]
        return _union([group.ids for epoch in later for group in epoch.moved if group.table == push.table])

    def unsure_blocks(self, push: PushRecord, since: int = 0) -> Ids:
        """Blocks for which it may be lost, in an epoch after ``since``."""
        first = self._first.get(push.worker, self.newest)
        last = self._last.get(push.worker, self.newest)
        if last == self.newest:
            return _union([])
        found = []
        for epoch, group in self._restored:
            if group.table != push.table or epoch.number < first or epoch.number <= since:
                continue
            gone = epoch.number > last and push.clock >= group.clock
            unseen = self._newest_epochs.get(push.worker, 0) < epoch.number
            unreported = epoch.number <= last and (unseen or (epoch.failure, push.worker) not in self._told)
            if gone or (unreported and push.number > group.watermark.get(push.worker, 0)):
                found.append(group.ids)
        return _union(found)


def _union(parts: Sequence[Ids]) -> Ids:
    return np.unique(np.concatenate(parts)) if parts else np.empty(0, np.uint32)


def _without(ids: Ids, others: Ids) -> Ids:
    """Each of either is in there once, as everywhere here; most have nothing in common with anything."""
    return np.setdiff1d(ids, others, assume_unique=True) if others.size else ids


def _common(ids: Ids, others: Ids) -> Ids:
    return np.intersect1d(ids, others, assume_unique=True) if ids.size and others.size else others[:0]


@dataclass
class SettledPushes:
    """What earlier verdicts of a run have found out: which uncertain pushes are in which blocks.

    Without it every death of a worker would leave a question forever, and after some tens of them almost any
    value could be explained. ``epoch``: the newest one then; later epochs may still lose what was in.
    ``held``: push -> block -> whether it is in there.
    """

    epoch: int = 0
    held: dict[PushKey, dict[int, bool]] = field(default_factory=dict)

    def settle(
        self, block: int, runs: Mapping[UncertainRun, Sequence[PushRecord]], found: set[PushKey]
    ) -> None:
        """``found``: those of the uncertain pushes that are in this block; the others are not."""
        for push in (push for run in runs.values() for push in run):
            key = push.worker, push.number
            self.held.setdefault(key, {})[block] = key in found

    def forget(self, block: int, runs: Mapping[UncertainRun, Sequence[PushRecord]]) -> None:
        """What was known of them may not hold any more: they are uncertain again."""
        for push in (push for run in runs.values() for push in run):
            self.held.get((push.worker, push.number), {}).pop(block, None)

    def split(self, push: PushRecord, ids: Ids) -> tuple[Ids, Ids]:
        """Of these blocks those of which nothing is known yet, and those that held the push."""
        held = self.held.get((push.worker, push.number), {})
        inside = np.array([block for block in held if held[block]], np.uint32)
        if not held:
            return ids, inside
        return _without(ids, np.array(list(held), np.uint32)), _common(ids, inside)


@dataclass(frozen=True)
class BlockSurplus:
    """A block whose value is ``extra`` more (or less) than what was written down can explain."""

    table: str
    block: int
    extra: int
    text: str


class _Account:
    """What every block must hold: the sum of the certain pushes, and runs of pushes that may be in it."""

    def __init__(self, job: Job, initial: TableValues) -> None:
        self.sums = {table.name: initial[table.name].astype(np.int64).copy() for table in job.tables}
        self._blocks = {table.name: table.blocks for table in job.tables}
        self._uncertain: dict[tuple[str, int], dict[UncertainRun, list[PushRecord]]] = {}
        self._counts: dict[tuple[str, str], np.ndarray] = {}  # per block, certain pushes so far

    def add_push(self, push: PushRecord, certain: Ids, unsure: Ids, alone: Ids) -> None:
        """``alone``: blocks in which it is a stretch of its own."""
        key = push.worker, push.table
        count = self._counts.setdefault(key, np.zeros(self._blocks[push.table], np.int64))
        self.sums[push.table][certain] += push.amount
        count[certain] += 1
        single = set(alone.tolist())
        for block in unsure.tolist():
            runs = self._uncertain.setdefault((push.table, block), {})
            stretch = -push.number if block in single else int(count[block])
            runs.setdefault((push.worker, stretch), []).append(push)

    def uncertain_runs(self, table: str, block: int) -> Mapping[UncertainRun, Sequence[PushRecord]]:
        return self._uncertain.get((table, block), {})


def find_surplus(
    job: Job,
    initial: TableValues,
    history: History,
    losses: ReportedLoss,
    values: TableValues,
    settled: SettledPushes | None = None,
) -> list[BlockSurplus]:
    """Blocks that are not x(0) plus each acknowledged push that is not reported lost, once, and nothing else.

    Of the pushes that a killed worker never saw acknowledged, that its successor repeats, that a rollback
    voids, or that nobody is sure about, a run may be in it, one of each stretch between pushes that are
    certain: a push stream applies in order, and a recovery loses what is newer than the watermark and older
    than what was sent again. A clock that a successor repeats counts alone in a block that has moved since:
    its former owner may not have finished what its new one has. Where workers do not wait for
    acknowledgements, one that is gone may have taken the last of its pushes with it. ``settled``: what
    earlier verdicts have found out; learns what this one does.
    """
    known = settled if settled is not None else SettledPushes()
    queued = _queued_workers(job, history, losses)
    account = _balance(job, initial, history, losses, queued, known)
    found = []
    for table in job.tables:
        extras = values[table.name].astype(np.int64) - account.sums[table.name]
        for block in range(table.blocks):
            extra = int(extras[block])
            runs = account.uncertain_runs(table.name, block)
            if not _is_explained(extra, runs, block, queued, known):
                text = _describe(job, history, losses, table.name, block, extra)
                found.append(BlockSurplus(table.name, block, extra, text))
    known.epoch = losses.newest
    return found


def _is_explained(
    extra: int,
    runs: Mapping[UncertainRun, Sequence[PushRecord]],
    block: int,
    queued: Collection[str],
    known: SettledPushes,
) -> bool:
    """Whether some of these pushes, or none, add that much to a block. ``known`` learns which."""
    if not (extra or runs):
        return True
    explanation = _explain(extra, runs, queued)
    if explanation.pushes is None:
        known.forget(block, runs)
        return explanation.unknown
    known.settle(block, runs, explanation.pushes)
    return True


def _queued_workers(job: Job, history: History, losses: ReportedLoss) -> set[str]:
    """Workers that have left with pushes in their queues."""
    if not job.strategy.queues:
        return set()
    return {worker for worker in history.acknowledged if losses.has_left(worker)}


def _balance(
    job: Job,
    initial: TableValues,
    history: History,
    losses: ReportedLoss,
    queued: Collection[str],
    settled: SettledPushes,
) -> _Account:
    account = _Account(job, initial)
    void = history.voided_clocks(losses.epochs)
    void_since = history.voided_clocks(losses.epochs, settled.epoch)
    for push in history.pushes:
        kept, held = settled.split(push, _without(push.ids, losses.lost_blocks(push)))
        clock = push.worker, push.clock
        repeated = job.strategy.queues and history.repeats_clock(push)
        certain = (
            history.is_acknowledged(push) and not repeated and clock not in void and push.worker not in queued
        )
        unsure = _common(kept, losses.unsure_blocks(push)) if certain else kept
        shaken = held if clock in void_since else losses.unsure_blocks(push, settled.epoch)
        unsure = _union([unsure, _common(held, shaken)])
        alone = losses.moved_blocks(push) if repeated else _union([])
        account.add_push(push, _without(_union([kept, held]), unsure), unsure, alone)
    return account


@dataclass(frozen=True)
class Explanation:
    """``pushes``: the uncertain ones that together are the difference; None: none are. ``unknown``: there
    are too many ways to say.
    """

    pushes: set[PushKey] | None = None
    unknown: bool = False


def _explain(
    extra: int, runs: Mapping[UncertainRun, Sequence[PushRecord]], queued: Collection[str]
) -> Explanation:
    """Which of these pushes add that much to a block.

    Of each stretch one run of them counts, or none; of a ``queued`` worker's the first ones. Meets in the
    middle: what half of the stretches may add, and what is left for the others.
    """
    if not extra:
        return Explanation(set())
    options = [_stretch_sums(run, worker in queued) for (worker, _), run in runs.items()]
    first = _possible_sums(options[::2])
    second = _possible_sums(options[1::2])
    if first is None or second is None:
        return Explanation(unknown=True)
    for one, pushes in first.items():
        if extra - one in second:
            return Explanation({*pushes, *second[extra - one]})
    return Explanation()


Sums = dict[int, tuple[PushKey, ...]]  # a sum -> pushes that make it


def _stretch_sums(run: Sequence[PushRecord], from_first: bool) -> Sums:
    """Of runs of these pushes, or none of them; ``from_first``: that begin with the first one."""
    keys = [(push.worker, push.number) for push in run]
    ends = [0, *accumulate(push.amount for push in run)]
    sums: Sums = {0: ()}
    for start, end in combinations(range(len(ends)), 2):
        if not (from_first and start):
            sums.setdefault(ends[end] - ends[start], tuple(keys[start:end]))
    return sums


def _possible_sums(options: Iterable[Sums]) -> Sums | None:
    """All sums of one of each; None: there are too many."""
    sums: Sums = {0: ()}
    for stretch in options:
        if len(sums) * len(stretch) > MOST_SUMS:
            return None
        sums = {
            left + right: (*before, *pushes)
            for left, before in sums.items()
            for right, pushes in stretch.items()
        }
    return sums


def _describe(job: Job, history: History, losses: ReportedLoss, table: str, block: int, extra: int) -> str:
    """Name the push that is missing or doubled, when a single one explains the difference."""
    text = f"table {table} block {block} of job {job.name}: value - expected = {extra}"
    for push in history.pushes:
        if push.table != table or push.amount != abs(extra) or block not in push.ids:
            continue
        if extra < 0:
            fate = "acknowledged, yet missing"
        elif block in losses.lost_blocks(push):
            fate = "called lost, yet applied"
        else:
            fate = "applied twice"
        return f"{text}: push {push.number} of {push.worker} (clock {push.clock}) was {fate}"
    return text
