"""When parts of a loss make a whole, and which share of the data a worker's part is of. Pure.

A loss that lacks a worker's part looks like progress, so a clock has a loss only when every share dealt for
it is in.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from scar.errors import InvalidRequest
from scar.placement import Epoch

MAX_METRICS = 64
MAX_NAME = 64  # characters
EARLY_STOPPING = "early_stopping"  # metric: how many workers ask for the end of the training
EVALUATIONS = "evaluations"  # metric: how many workers have evaluated in this clock

Metrics = tuple[tuple[str, float], ...]  # by name, each once


def pack_metrics(metrics: Mapping[str, float]) -> Metrics:
    """Sorted by name. Raises :class:`InvalidRequest` when there are too many, or one has no proper name."""
    if wrong := [name for name in metrics if not 1 <= len(name) <= MAX_NAME or not name.isprintable()]:
        raise InvalidRequest(f"{wrong[0]!r:.80} is no name of a metric", f"Use 1 to {MAX_NAME} characters")
    if len(metrics) > MAX_METRICS:
        raise InvalidRequest(f"{len(metrics)} metrics are more than {MAX_METRICS} in a clock")
    return tuple(sorted((name, float(value)) for name, value in metrics.items()))


@dataclass(frozen=True, slots=True)
class LossPart:
    """One worker's part of a clock's loss, over share ``rank`` of ``world``.

    ``examples``, ``total``: how many of how many it covers (0 of 0: not known). ``counted``: they tell
    whether the parts make a whole, not the ranks. ``absent``: ranks whose share is dropped, because their
    workers were dead before the clock was opened. ``metrics``: what else the worker has logged.
    """

    loss: float
    rank: int
    world: int
    examples: int = 0
    total: int = 0
    counted: bool = False
    absent: tuple[int, ...] = ()
    metrics: Metrics = ()


@dataclass(frozen=True, slots=True)
class LossPoint:
    """Loss of one clock. ``fraction``: of the data that it is of; below 1 only where the share of the dead
    is dropped. ``metrics``: each summed over the parts that have it.
    """

    clock: int
    loss: float
    fraction: float = 1.0
    metrics: Metrics = ()

    @property
    def told_metrics(self) -> Metrics:
        """As many as one worker may log, as answers have bounded size; what ends the training is in."""
        if len(self.metrics) <= MAX_METRICS:
            return self.metrics
        ours = tuple(one for one in self.metrics if one[0] in (EARLY_STOPPING, EVALUATIONS))
        others = tuple(one for one in self.metrics if one not in ours)
        return tuple(sorted((*ours, *others[: MAX_METRICS - len(ours)])))

    @property
    def scaled(self) -> float:
        """As of the whole data."""
        return self.loss / self.fraction


def combine_parts(clock: int, parts: Iterable[LossPart]) -> LossPoint | None:
    """The loss of a clock when these parts are of one deal, each share once; else None. Their order does
    not matter.
    """
    ranked = sorted(parts, key=lambda part: part.rank)
    point = _sum_whole(clock, ranked)
    return point if point is None else replace(point, metrics=_sum_metrics(ranked))


def _sum_whole(clock: int, ranked: Sequence[LossPart]) -> LossPoint | None:
    if not ranked or len({part.counted for part in ranked}) > 1:
        return None
    if {part.rank for part in ranked} & {rank for part in ranked for rank in part.absent}:
        return None  # it is back, and a shard that closed the clock before says the loss without it
    totals = {part.total for part in ranked}
    total = totals.pop() if len(totals) == 1 else 0
    covered = sum(part.examples for part in ranked)
    loss = sum(part.loss for part in ranked)
    if ranked[0].counted:
        is_whole = covered == total > 0
    else:
        is_whole = _covers_each_once([part.rank for part in ranked], ranked)
    if is_whole:
        return LossPoint(clock, loss)
    absent = ranked[0].absent
    known = absent and all(part.absent == absent for part in ranked)
    if not known or not _covers_each_once(sorted([*absent, *(part.rank for part in ranked)]), ranked):
        return None
    fraction = covered / total if total else len(ranked) / ranked[0].world
    return LossPoint(clock, loss, fraction) if 0 < fraction < 1 else None


def _sum_metrics(parts: Sequence[LossPart]) -> Metrics:
    sums: dict[str, float] = {}
    for part in parts:
        for name, value in part.metrics:
            sums[name] = sums.get(name, 0.0) + value
    return tuple(sorted(sums.items()))


def _covers_each_once(ranks: Sequence[int], parts: Sequence[LossPart]) -> bool:
    """These (ascending) are all ranks of one deal."""
    world = parts[0].world
    same = len(ranks) == world and all(part.world == world for part in parts)
    return same and all(rank == place for place, rank in enumerate(ranks))


@dataclass(frozen=True, slots=True)
class DataShare:
    """Share ``rank`` of ``world``, as it was dealt in ``epoch`` to workers in rank order (``seats``).

    ``examples``: of ``total`` (0 of 0: not known).
    """

    rank: int
    seats: tuple[str, ...]
    epoch: int
    examples: int = 0
    total: int = 0

    @property
    def world(self) -> int:
        return len(self.seats)

    @classmethod
    def of_worker(cls, worker: str, epoch: Epoch, total: int = 0) -> DataShare:
        share = cls(epoch.rank(worker), epoch.ranks, epoch.number)
        part = share.slice_of(total)
        return cls(share.rank, share.seats, share.epoch, part.stop - part.start, total)

    def slice_of(self, n: int) -> slice:
        """Its contiguous part of ``n`` examples."""
        return slice(self.rank * n // self.world, (self.rank + 1) * n // self.world)


class LossReport:
    """What a worker reports in the open clock, and of which share of the data it is.

    A user who calls :meth:`data_slice` works on that share from then on. One who reads ``world_size`` divides
    the data on their own, by what was read last. ``rank`` alone is read for many reasons (who prints?), so
    only its first read counts. A user who does none of these does not divide the data: their part is of the
    division in force when the clock was opened.
    """

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._shared: DataShare | None = None
        self._first: DataShare | None = None
        self._rank: DataShare | None = None
        self._world: DataShare | None = None
        self._warned: tuple[DataShare, tuple[str, ...]] | None = None
        self.open_clock()

    def open_clock(self) -> None:
        """A clock is opened: nothing is reported for it yet, and nothing dealt."""
        self._dealt: Epoch | None = None
        self._loss: float | None = None
        self._metrics: dict[str, float] = {}
        self._examples = self._total = 0
        self._spoiled = False

    def spoil(self) -> None:
        """Something of the open clock was left out since it is no number: its loss is none, either."""
        self._spoiled = True

    def data_slice(self, epoch: Epoch, n: int) -> slice:
        """A deal lasts a clock: what else is asked in it belongs to the same one."""
        self._dealt = self._dealt or epoch
        self._shared = DataShare.of_worker(self._worker, self._dealt, n)
        return self._shared.slice_of(n)

    def read_rank(self, epoch: Epoch) -> int:
        self._rank = DataShare.of_worker(self._worker, self._dealt or epoch)
        self._first = self._first or self._rank
        return self._rank.rank

    def read_world_size(self, epoch: Epoch) -> int:
        self._world = DataShare.of_worker(self._worker, self._dealt or epoch)
        return self._world.world

    @property
    def _current_share(self) -> DataShare | None:
        """The share that the user works on; None: he has never asked."""
        if self._shared or not (self._rank and self._world):
            return self._shared or self._world or self._first
        return min(self._rank, self._world, key=lambda share: share.epoch)

    @property
    def _mixes_divisions(self) -> bool:
        """What he computes his share from is of two deals."""
        if self._shared or self._rank is None or self._world is None:
            return False
        return self._rank.seats != self._world.seats

    def add_loss(self, loss: float, examples: int | None, of: int | None) -> None:
        """Raises :class:`InvalidRequest` when it cannot be told of how many examples these are."""
        counted = examples is not None
        if self._loss is not None and counted != (self._total > 0):
            raise InvalidRequest(
                "one clock has reports with examples and without",
                "Give examples with every report, or with none",
            )
        if counted:
            self._count_examples(examples or 0, of)
        elif of is not None:
            raise InvalidRequest(
                "report(..., of=...) needs examples, too", "Say of how many of them the loss is: examples=n"
            )
        self._loss = (self._loss or 0.0) + float(loss)

    def add_metrics(self, metrics: Mapping[str, float]) -> None:
        """Raises as :func:`pack_metrics` does, and then adds none."""
        sums = {name: self._metrics.get(name, 0.0) + float(value) for name, value in metrics.items()}
        pack_metrics(self._metrics | sums)
        self._metrics |= sums

    @property
    def has_loss(self) -> bool:
        """Something was reported in the open clock."""
        return self._loss is not None

    def _count_examples(self, examples: int, of: int | None) -> None:
        known = self._shared.total if self._shared else 0
        total = known if of is None else of
        if total <= 0:
            raise InvalidRequest(
                f"report(..., examples={examples}) does not say of how many",
                "Call worker.data_slice(total), or give of=total",
            )
        if not 0 <= examples <= total - self._examples or self._total not in (0, total):
            raise InvalidRequest(
                f"{self._examples + examples} of {self._total or total} examples are reported in one clock,"
                f" now of {total}",
                "Report each example once in a clock",
            )
        self._examples += examples
        self._total = total

    def make_part(self, opened: Epoch, drops: bool) -> LossPart | None:
        """This worker's part of the clock that was opened in this epoch; None: it has reported none, or none
        that counts.

        ``drops``: the share of the dead is dropped. Raises :class:`InvalidRequest` for metrics without a
        loss.
        """
        if self._metrics and self._loss is None:
            raise InvalidRequest(
                f"{', '.join(self._metrics)} was logged without a loss", "Call worker.report(loss), too"
            )
        share = self._current_share or DataShare.of_worker(self._worker, opened)
        metrics = pack_metrics(self._metrics)
        if self._loss is None or share.rank < 0 or self._mixes_divisions:
            return None
        living = {member.name for member in opened.workers}
        absent = tuple(rank for rank, name in enumerate(opened.ranks) if drops and name not in living)
        loss = math.nan if self._spoiled else self._loss
        part = LossPart(loss, share.rank, share.world, share.examples, share.total, False, absent, metrics)
        if self._total:
            return replace(part, examples=self._examples, total=self._total, counted=True)
        return part

    def warn_outdated(self, opened: Epoch) -> str:
        """A warning, once for each change, for a user who reports of a share that belongs to a former
        deal; else empty.
        """
        share = self._current_share
        now = DataShare.of_worker(self._worker, opened)
        if self._loss is None or share is None or share.epoch >= opened.number:
            return ""
        if (share.rank, share.world) == (now.rank, now.world) or self._warned == (share, opened.ranks):
            return ""
        self._warned = (share, opened.ranks)
        was = _describe_share(share)
        new = _describe_share(now)
        return (
            f"{self._worker} still works on share {was} of the data, dealt to {', '.join(share.seats)}"
            f" in epoch {share.epoch}; since epoch {opened.number} the workers are"
            f" {', '.join(opened.ranks)} and its share is {new}. A part of the data belongs to nobody or"
            " to two, so no clock has a loss. Call worker.data_slice(n) in every clock, inside the loop"
        )


def _describe_share(share: DataShare) -> str:
    return f"{share.rank + 1} of {share.world}"
