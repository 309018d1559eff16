"""How far a worker is: its clocks, their losses, and which of its pushes count. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scar.losses import LossPart, LossPoint
from scar.placement import Epoch

DONE = 1 << 63  # mark of a worker that will not push any more
LOSSES_KEPT = 256  # clocks


@dataclass(frozen=True, slots=True)
class ShardRecord:
    """What a shard knows of a worker's name: its own open clock, and the newest mark that it was sent.

    ``joins``: its open clock when it does not tell everybody yet.
    """

    clock: int = 0
    finished: int = 0
    joins: int = 0


class WorkerClocks:
    """The clocks of one worker. ``known``: None until its shards have said where it goes on.

    ``first``: the clock that it began with. ``parts``: of the loss of the last of that many finished clocks.
    ``final_loss``: for which its user has ended. ``opened``: the epoch that was followed when the open clock
    was opened.
    """

    def __init__(self) -> None:
        self.known: int | None = None
        self.first = 0
        self.parts: dict[int, LossPart] = {}
        self.final_loss: LossPoint | None = None
        self.done = False
        self.opened: Epoch | None = None
        self.pulled = -1  # last clock for which values were pulled
        self._unheld: dict[int, int] = {}  # clock -> its pulls that could not be given back, or not yet
        self._voided = -1  # clock whose pushes no longer count
        self._first_new = 0  # what a predecessor has told of clocks below is not told a second time

    @property
    def finished(self) -> int:
        """Clocks that are finished, which is the number of the open one."""
        return self.known or 0

    def mark_after(self, told: int) -> int | None:
        """What a shard has to be told that was told this mark last; None: nothing yet.

        One that joins as the work ends hears of the last clock before it hears that nothing more will come,
        which says of no clock that it was finished.
        """
        return DONE if self.done and (self.known is None or told >= self.known) else self.known

    def begin_pull(self, clock: int) -> None:
        """Something is being pulled that could be given back once it is there."""
        self._unheld = {one: count for one, count in self._unheld.items() if one >= clock - 1}
        self._unheld[clock] = self._unheld.get(clock, 0) + 1

    def hold_pull(self, clock: int) -> None:
        """It is there, and kept."""
        self._unheld[clock] -= 1

    def holds(self, clock: int) -> bool:
        """Whether all that was pulled in this clock can be given back."""
        return self._unheld.get(clock, 1) == 0

    def resume_at(self, epoch: Epoch, records: Sequence[ShardRecord], queues: bool) -> list[int]:
        """Begin where predecessors have stopped: see :func:`resume_clocks`.

        Returns for each shard the clock from which on pushes count there.
        """
        self._first_new = first_new_clock(records)
        resumed = resume_clocks(records, queues)
        self.known = self.first = max(min(resumed), epoch.restart)
        self.opened = epoch
        return resumed

    def finish_clock(self, epoch: Epoch, part: LossPart | None) -> None:
        """The open clock is finished in this epoch."""
        counts = not self.is_void(epoch) and self.finished >= self._first_new
        # Before anybody hears of it: who is dead in this epoch has no part in the next clock.
        self.opened = epoch
        self.known = max(self.finished + 1, epoch.restart)
        if part is not None and counts:
            self.parts[self.known] = part
            while len(self.parts) > LOSSES_KEPT:
                del self.parts[next(iter(self.parts))]

    def roll_back(self) -> None:
        """The model went back to an earlier state."""
        if self.pulled >= self.finished:
            self._voided = self.finished  # its pushes were computed from values that no longer exist
        self.parts.clear()  # a clock that is not closed everywhere would mix two models

    def is_void(self, epoch: Epoch) -> bool:
        """Whether the open clock's pushes do not count.

        They are computed from values that no longer exist, or not by everybody.
        """
        return self._voided == self.finished or self.finished < epoch.restart


def oldest_clock(slack: int, finished: int) -> int:
    """The oldest clock whose values a pull may get. ``slack``: of the job's consistency."""
    return max(0, finished - slack)


def resume_clocks(records: Sequence[ShardRecord], queues: bool) -> list[int]:
    """For each shard the clock from which on a new incarnation's pushes count; it begins with the lowest.

    That is the first clock of which nobody has heard. A predecessor that died between two of its marks had
    pushed everything everywhere before the first of them, so its clock is finished and must not be done
    again: where the clock is closed, values and local state are of the next one, and what is computed from
    them is another iteration than the one that counts there. A clock that one shard has closed without a
    worker of this name is done without it on all.

    ``queues``: a mark proves nothing for other shards. A clock is done again then, but not twice on the
    shards that know; one that has just joined knows no marks and may be far behind, so it decides nothing.
    """
    if not queues:
        return [first_new_clock(records)] * len(records)
    marks = [record.finished if record.finished < DONE else 0 for record in records]
    clocks = [record.clock if record.clock < DONE else 0 for record in records]
    reached = [max(clock, mark) for clock, mark in zip(clocks, marks, strict=True)]
    told = [clock for clock, record in zip(reached, records, strict=True) if record.finished]
    start = min(told) if told else max(reached)
    return [max(mark, start) for mark in marks]


def first_new_clock(records: Sequence[ShardRecord]) -> int:
    """The first clock of which no predecessor has told any shard, and that none has closed.

    A new incarnation has no part in the loss of a clock below: it would not be of the values from which the
    other workers computed theirs.
    """
    return max(clock for one in records for clock in (0, one.clock, one.joins, one.finished) if clock < DONE)
