"""The oracles: each takes what was recorded and raises :class:`Violation` with the first thing that cannot be.

They know nothing of how the services work, only what they promise (docs/guarantees.md).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, combinations, pairwise

import numpy as np

from scar.blocks import Ids
from scar.codec import ids_from_bytes
from scar.placement import NOBODY, Epoch, Source, concatenated
from scar.tables import Job
from scar.v1 import recovery_pb2
from scar_chaos.history import History, Pull, Push

Values = Mapping[str, np.ndarray]  # table -> one value per block
Stretch = tuple[str, int]  # worker, and how many certain pushes of its came before: pushes with none of these in between


class Violation(AssertionError):
    """A guarantee does not hold; the text names what cannot be."""


def demand(condition: bool, text: str) -> None:
    if not condition:
        raise Violation(text)


class Losses:
    """Which (push, block) pairs the books call lost.

    The books are the ledger, to which every worker reports that follows the epoch of a recovery. One that was gone by then
    cannot: what it pushed at the clock of a restored group or later may be in it or not, and is *unsure*. So is, beyond the
    watermark, what a worker pushed that died before anybody saw it follow the epoch.
    """

    def __init__(
        self, ledger: Iterable[recovery_pb2.FailureRecord], epochs: Sequence[Epoch] = (), seen: Mapping[str, int] | None = None
    ) -> None:
        self.ranges: dict[tuple[str, str], list[tuple[int, int, Ids]]] = {}
        for lost in (lost for record in ledger for lost in record.lost):
            entry = lost.after, lost.upto, ids_from_bytes(lost.block_ids)
            self.ranges.setdefault((lost.worker, lost.table), []).append(entry)
        restoring = [epoch for epoch in epochs if epoch.number > 1]
        self.restored = [(epoch, group) for epoch in restoring for group in epoch.moved if group.source != Source.DONOR]
        self.epochs = epochs
        self.first = {member.key: epoch.number for epoch in reversed(epochs) for member in epoch.workers}
        self.last = {member.key: epoch.number for epoch in epochs for member in epoch.workers}
        self.newest = epochs[-1].number if epochs else 0
        self.seen = dict(seen or {})

    def gone(self, worker: str) -> bool:
        """It is in no epoch any more."""
        return self.last.get(worker, self.newest) < self.newest

    def of(self, push: Push) -> Ids:
        """Blocks for which this push is lost."""
        ranges = self.ranges.get((push.worker, push.table), [])
        return _union([ids for after, upto, ids in ranges if after < push.number <= upto])

    def unsure(self, push: Push) -> Ids:
        """Blocks for which it may be lost."""
        first, last = self.first.get(push.worker, self.newest), self.last.get(push.worker, self.newest)
        if last == self.newest:
            return _union([])
        found = []
        for epoch, group in self.restored:
            if group.table != push.table or epoch.number < first:
                continue
            gone = epoch.number > last and push.clock >= group.clock
            unreported = self.seen.get(push.worker, 0) < epoch.number <= last
            if gone or (unreported and push.number > group.watermark.get(push.worker, 0)):
                found.append(group.ids)
        return _union(found)


def _union(parts: Sequence[Ids]) -> Ids:
    return np.unique(np.concatenate(parts)) if parts else np.empty(0, np.uint32)


@dataclass(frozen=True)
class Surplus:
    """A block whose value is ``extra`` more (or less) than what was written down can explain."""

    table: str
    block: int
    extra: int
    text: str


def surplus(job: Job, initial: Values, history: History, losses: Losses, values: Values) -> list[Surplus]:
    """Blocks that are not x(0) plus each acknowledged push that the books do not call lost, once, and nothing else.

    Of the pushes that a killed worker never saw acknowledged, that its successor repeats, that a rollback voids, or that
    nobody is sure about, a run may be in it, one of each stretch between pushes that are certain: a lane applies in order, and
    a recovery loses what is newer than the watermark and older than what was sent again. Where workers do not wait for
    acknowledgements, one that is gone may have taken the last of its pushes with it.
    """
    void = history.voided(losses.epochs)
    queued = {worker for worker in history.acknowledged if job.strategy.queues and losses.gone(worker)}
    expected = {table.name: initial[table.name].astype(np.int64).copy() for table in job.tables}
    perhaps: dict[tuple[str, int], dict[Stretch, list[int]]] = {}
    passed: dict[tuple[str, str], np.ndarray] = {}  # (worker, table) -> per block, its certain pushes so far
    for push in history.pushes:
        kept = np.setdiff1d(push.ids, losses.of(push))
        certain = history.is_acknowledged(push) and not history.repeats(push) and (push.worker, push.clock) not in void
        certain = certain and push.worker not in queued
        unsure = np.intersect1d(kept, losses.unsure(push)) if certain else kept
        count = passed.setdefault((push.worker, push.table), np.zeros(job.table(push.table).blocks, np.int64))
        sure = np.setdiff1d(kept, unsure)
        expected[push.table][sure] += push.amount
        count[sure] += 1
        for block in unsure.tolist():
            stretch = push.worker, int(count[block])
            perhaps.setdefault((push.table, block), {}).setdefault(stretch, []).append(push.amount)
    found = []
    for table in job.tables:
        extras = values[table.name].astype(np.int64) - expected[table.name]
        for block in np.flatnonzero(extras).tolist():
            extra = int(extras[block])
            if not _explained(extra, perhaps.get((table.name, block), {}), queued):
                found.append(Surplus(table.name, block, extra, _explain(job, history, losses, table.name, block, extra)))
    return found


def exactly_once(job: Job, initial: Values, history: History, losses: Losses, values: Values) -> None:
    """No block has a :func:`surplus`."""
    wrong = surplus(job, initial, history, losses, values)
    demand(not wrong, wrong[0].text if wrong else "")


def _explained(extra: int, perhaps: Mapping[Stretch, Sequence[int]], queued: Collection[str]) -> bool:
    """Can these pushes add that to a block: of each stretch one run of them, or none; of a ``queued`` worker's the first ones?

    Meets in the middle: what half of the stretches may add, and what is left for the others.
    """
    options = []
    for (worker, _), amounts in perhaps.items():
        ends = [0, *accumulate(amounts)]
        options.append(set(ends) if worker in queued else {end - start for start, end in combinations(ends, 2)} | {0})
    first, second = _sums(options[::2]), _sums(options[1::2])
    return any(extra - one in second for one in first)


def _sums(options: Iterable[set[int]]) -> set[int]:
    """All sums of one of each."""
    sums = {0}
    for amounts in options:
        sums = {left + right for left in sums for right in amounts}
    return sums


def _explain(job: Job, history: History, losses: Losses, table: str, block: int, extra: int) -> str:
    """Name the push that is missing or doubled, when a single one explains the difference."""
    text = f"table {table} block {block} of job {job.name}: value - expected = {extra}"
    for push in history.pushes:
        if push.table == table and push.amount == abs(extra) and block in push.ids:
            lost = block in losses.of(push)
            fate = ("called lost, yet applied" if lost else "applied twice") if extra > 0 else "acknowledged, yet missing"
            return f"{text}: push {push.number} of {push.worker} (clock {push.clock}) was {fate}"
    return text


def never_torn(history: History) -> None:
    demand(not history.torn, "; ".join(history.torn[:3]))


def never_backwards(history: History, epochs: Sequence[Epoch]) -> None:
    """Between two pulls of one worker a block only grows, unless an epoch in between restored it."""
    restored: dict[tuple[int, str], Ids] = {}
    for epoch in epochs:
        for group in epoch.moved:
            if group.source != Source.DONOR:
                key = (epoch.number, group.table)
                restored[key] = np.union1d(restored.get(key, np.empty(0, np.uint32)), group.ids)
    series: dict[tuple[str, str], list[Pull]] = {}
    for pull in history.pulls:
        series.setdefault((pull.worker, pull.table), []).append(pull)
    for (worker, table), pulls in series.items():
        for old, new in pairwise(pulls):
            back = np.flatnonzero(new.values < old.values)
            excused = [restored.get((number, table), np.empty(0, np.uint32)) for number in range(old.before + 1, new.after + 1)]
            wrong = np.setdiff1d(back, np.concatenate([*excused, np.empty(0, np.uint32)]))
            demand(not len(wrong), f"{worker} saw table {table} blocks {wrong.tolist()} go backwards at clock {new.clock}")


def epochs_linear(job: Job, epochs: Sequence[Epoch]) -> None:
    """Numbers without gaps; every block has one owner of its epoch; owners change only where ``moved`` says; fences stay."""
    numbers = [epoch.number for epoch in epochs]
    demand(numbers == list(range(1, len(epochs) + 1)), f"epochs are {numbers}")
    for epoch in epochs:
        owners = concatenated(job, epoch.owners)
        demand(len(owners) == job.blocks, f"epoch {epoch.number} has {len(owners)} owners for {job.blocks} blocks")
        owned = bool(((owners < len(epoch.shards)) | (owners == NOBODY)).all())
        demand(owned, f"epoch {epoch.number} has an owner that is no shard")
        members = {member.incarnation for member in (*epoch.shards, *epoch.workers)}
        demand(not members & set(epoch.fenced), f"epoch {epoch.number} has a fenced member")
    for old, new in pairwise(epochs):
        demand(set(old.fenced) <= set(new.fenced), f"epoch {new.number} forgot a fence")
        for table in job.tables:
            moved = [group.ids for group in new.moved if group.table == table.name]
            listed = np.concatenate([*moved, np.empty(0, np.uint32)])
            demand(len(np.unique(listed)) == len(listed), f"epoch {new.number} moves a block twice")
            changed = np.flatnonzero(_keys(old, table.name) != _keys(new, table.name))
            orphaned = np.flatnonzero(new.owners[table.name] == NOBODY)
            wrong = np.setdiff1d(changed, np.concatenate([listed, orphaned]))
            demand(not len(wrong), f"epoch {new.number} moved {table.name} blocks {wrong.tolist()} silently")


def _keys(epoch: Epoch, table: str) -> np.ndarray:
    """Member key of every block's owner."""
    names = np.array([*(member.key for member in epoch.shards), ""])
    owners = epoch.owners[table].astype(np.int64)
    return names[np.where(owners == NOBODY, len(names) - 1, owners)]


def never_ahead(saved: Values, values: Values) -> None:
    """What a restore would give holds nothing that the model does not."""
    for table in saved:
        wrong = np.flatnonzero(saved[table] > values[table]).tolist()
        demand(not wrong, f"the checkpoint is ahead of the model: table {table} blocks {wrong}")
