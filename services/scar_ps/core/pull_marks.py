"""Which blocks living workers could give back, and which the next replica must have. Pure (protocol §15).

A worker that pulled a block while a clock was open holds it as it was at the end of that clock, too, unless
somebody's push has changed it. A pull counts once the worker has said, with its mark, that it keeps it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scar.blocks import Ids, Positions
from scar.strategies import PULLS_COUNTED

NEVER = -(1 << 40)  # a clock so early that no pull is near it


class PullMarks:
    """Of one store with ``count`` blocks. ``holdable``: workers can give its blocks back as they were.
    ``exposes``: some may be exposed.

    ``pulled``: last clock in which a living worker pulled a block as it is. ``exposed``: nobody could give it
    back as it was when the last clock closed. ``copied``: the next replica keeps a copy, perhaps an old one.
    """

    def __init__(self, count: int, holdable: bool) -> None:
        self.holdable = holdable
        self.pulled: NDArray[np.int64] = np.full(count, NEVER, np.int64)
        self.exposed: NDArray[np.bool_] = np.ones(count, np.bool_)
        self.exposes = True
        self.copied: NDArray[np.bool_] = np.zeros(count, np.bool_)

    def copy_for(self, count: int, source: Positions | slice, target: Positions) -> PullMarks:
        """Those of a store of ``count`` blocks, in which the blocks at ``source`` are at ``target``."""
        new = PullMarks(count, self.holdable)
        new.exposes = self.exposes
        new.pulled[target] = self.pulled[source]
        new.exposed[target] = self.exposed[source]
        new.copied[target] = self.copied[source]
        return new

    def note_change(self, positions: Positions | slice) -> None:
        """What was pulled of these blocks is not what they are any more."""
        self.pulled[positions] = NEVER

    def expose(self, clock: int) -> None:
        """This clock closes; nothing of it is applied yet."""
        if self.holdable:
            np.less_equal(self.pulled, clock - PULLS_COUNTED, out=self.exposed)

    def expose_all(self, exposed: bool) -> None:
        """The same for all blocks at once, where no clock says it."""
        if self.exposes is not exposed:
            self.exposes = exposed
            self.exposed[:] = exposed

    def take_due(
        self, changed: NDArray[np.bool_], ready: NDArray[np.bool_], whole: bool
    ) -> tuple[Positions, Positions]:
        """What goes to the next replica, and of what its copies are out of date; both count as done.

        ``changed``: the replica lacks it, written to; ``ready``: may go; ``whole``: the replica has nothing.
        """
        if whole:
            changed |= self.copied
            self.copied[:] = False
        due = changed & self.exposed & ready
        gone = self.copied & changed & ~due
        changed[due] = False
        self.copied[due] = True
        self.copied[gone] = False
        return np.flatnonzero(due), np.flatnonzero(gone)


@dataclass(frozen=True, eq=False, slots=True)
class NotedPull:
    """Whole settled blocks that a worker pulled while a clock was open."""

    clock: int
    table: str
    ids: Ids


class PullNotes:
    """What workers pulled in their open clocks, until they say that they keep it. They may have pulled in the
    next one when the mark of the last comes.
    """

    def __init__(self) -> None:
        self._noted: dict[str, list[NotedPull]] = {}  # by member key

    def add(self, worker: str, pull: NotedPull) -> None:
        kept = [one for one in self._noted.get(worker, []) if one.clock >= pull.clock - 1]
        self._noted[worker] = [*kept, pull]

    def take(self, worker: str, clock: int) -> list[NotedPull]:
        """What the worker pulled in this clock, which it has finished."""
        noted = self._noted.pop(worker, [])
        self._noted[worker] = [one for one in noted if one.clock > clock]
        return [one for one in noted if one.clock == clock]

    def adopt_epoch(self, workers: Iterable[str], gained: Mapping[str, Ids]) -> None:
        """``workers``: keys of the living; ``gained``: blocks by table that are not what was pulled."""
        alive = set(workers)
        self._noted = {
            worker: [_without_blocks(pull, gained) for pull in pulls]
            for worker, pulls in self._noted.items()
            if worker in alive
        }


def _without_blocks(pull: NotedPull, gained: Mapping[str, Ids]) -> NotedPull:
    gone = gained.get(pull.table)
    if gone is None or not len(gone):
        return pull
    return NotedPull(pull.clock, pull.table, np.setdiff1d(pull.ids, gone, assume_unique=True))
