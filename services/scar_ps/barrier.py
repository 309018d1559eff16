"""Clocks and numbers of one shard: who has finished what, which push was the last of each worker, what is summed up when.

Pure bookkeeping, by worker; nothing here is per block.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from scar.errors import OutOfOrder

DONE = 1 << 63  # "finished" of a worker whose work is done
LOSSES_KEPT = 1 << 16  # closed clocks


class NotYet(Exception):
    """The call cannot be served now; it is tried again after the next change. The text says what it waits for."""


@dataclass(frozen=True, slots=True)
class Sender:
    """Who sent a request; an empty name is a reader that is no worker."""

    name: str
    incarnation: str

    @property
    def key(self) -> str:
        return f"{self.name}@{self.incarnation}"


@dataclass(slots=True)
class Mark:
    """Clocks that a worker has finished, and the newest epoch in which it said so. ``done``: it will not push any more."""

    real: int
    epoch: int
    done: bool = False

    @property
    def finished(self) -> int:
        return DONE if self.done else self.real


class Barrier:
    """The open clock: all clocks below it are closed. It rises when every worker of the epoch has finished it."""

    def __init__(self) -> None:
        self.clock = 0
        self.losses: dict[int, float] = {}  # closed clock -> sum over workers
        self._marks: dict[str, Mark] = {}  # by worker name: a new incarnation inherits
        self._parts: dict[int, dict[str, float]] = {}
        self._reached = 0  # most clocks that any worker has really finished

    def mark(self, worker: str, finished: int, epoch: int, loss: float | None) -> None:
        """A worker has finished ``finished`` clocks; ``loss`` is its part for the last of them."""
        mark = self._marks.setdefault(worker, Mark(0, 0))
        mark.epoch, mark.done = max(mark.epoch, epoch), mark.done or finished >= DONE
        if finished < DONE:
            mark.real = max(mark.real, finished)
            self._reached = max(self._reached, finished)
        if loss is not None and self.clock < finished < DONE:
            self._parts.setdefault(finished - 1, {})[worker] = loss

    def returned(self, worker: str) -> None:
        """A new incarnation of a worker that had left: from now on it is waited for again."""
        if worker in self._marks:
            self._marks[worker].done = False

    def finished(self, worker: str) -> int:
        mark = self._marks.get(worker)
        return mark.finished if mark else 0

    def marks(self) -> dict[str, int]:
        return {worker: mark.finished for worker, mark in self._marks.items()}

    def target(self, workers: Sequence[str], since: int) -> int:
        """Where the open clock may rise to: only marks given in epoch ``since`` or later count."""
        marks = [self._marks.get(worker) for worker in workers]
        counted = [mark.finished for mark in marks if mark is not None and mark.epoch >= since]
        if not counted or len(counted) < len(workers):
            return self.clock
        # Workers that are done wait for nobody; still, no clock beyond the last real one ever closes.
        return max(self.clock, min(min(counted), self._reached))

    def close(self, upto: int, workers: Sequence[str]) -> None:
        """Raise the open clock to ``upto``; losses of the clocks below are summed in rank order, departed workers last."""
        for clock in sorted(clock for clock in self._parts if clock < upto):
            parts = self._parts.pop(clock)
            ranked = [worker for worker in workers if worker in parts]
            ranked += sorted(worker for worker in parts if worker not in workers)
            self.losses[clock] = sum(parts[worker] for worker in ranked)
            if len(self.losses) > LOSSES_KEPT:
                del self.losses[next(iter(self.losses))]
        self.clock = max(self.clock, upto)

    @property
    def last_loss(self) -> tuple[float, int]:
        """(loss, clock + 1) of the last closed clock with a loss; (0, 0) when there is none."""
        if not self.losses:
            return 0.0, 0
        clock = next(reversed(self.losses))
        return self.losses[clock], clock + 1


class Lanes:
    """Last seq of each worker incarnation, and the last push of each that the values contain."""

    def __init__(self) -> None:
        self.watermark: dict[str, int] = {}
        self._last: dict[str, int] = {}

    def is_duplicate(self, sender: Sender, seq: int) -> bool:
        """True when this seq was taken before. Raises :class:`OutOfOrder` when one before it is missing."""
        last = self._last.get(sender.key, 0)
        if seq > last + 1:
            raise OutOfOrder(f"push {seq} of {sender.key} came after push {last}")
        return seq <= last

    def take(self, sender: Sender, seq: int) -> None:
        self._last[sender.key] = seq

    def contains(self, worker: str, push_id: int) -> None:
        self.watermark[worker] = max(self.watermark.get(worker, 0), push_id)

    def keep(self, workers: Iterable[str]) -> None:
        """Forget worker incarnations that are not among these keys: they never come back."""
        alive = set(workers)
        self._last = {key: seq for key, seq in self._last.items() if key in alive}
        self.watermark = {key: push for key, push in self.watermark.items() if key in alive}


def merged(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    """The larger push id of each worker."""
    return {key: max(one.get(key, 0), other.get(key, 0)) for key in {**one, **other}}
