"""What failures have cost, in clocks, as the losses since show it. Pure.

Iteration cost is the number of extra iterations to reach a loss (seed 000, section 3). The lowest loss before
a failure is one for which no undisturbed twin is needed: the run itself had reached it, at a clock that is
known. So the cost to reach that loss is the clocks from there until the loss is as low again. The cost to
reach a lower loss may differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from scar.v1.recovery_pb2 import FailureRecord
from scar.v1.types_pb2 import JobSpec
from scar_admin.loss_series import LossSeries
from scar_admin.predicted_costs import predict_cost
from scar_admin.status import ClusterStatus

NEXT_CAME = "the next failure came before the loss was back"
UNBOUNDED = "no clock bounds how old pulled values are in asp"


@dataclass(frozen=True)
class MeasuredCost:
    """Above ``more_than`` and at most ``at_most`` clocks; None: not measured, and ``reason`` says why.

    ``back``: the first clock whose loss is as low again. ``predicted``: what was to be expected by the first
    loss since; None: too little was known. ``until``: the clock of the next failure, as far as it was known.
    """

    more_than: int | None = None
    at_most: int | None = None
    reason: str = ""
    back: int | None = field(default=None, compare=False)
    predicted: float | None = field(default=None, compare=False)
    until: int | None = field(default=None, compare=False)

    @property
    def text(self) -> str:
        """``<=2`` where no loss since narrows it to one clock; ``~12``: not measured yet, but predicted."""
        if self.at_most is None:
            return "-" if self.predicted is None or self.final else f"~{self.predicted:.0f}"
        return str(self.at_most) if self.more_than == self.at_most - 1 else f"<={self.at_most}"

    @property
    def final(self) -> bool:
        """No loss after :attr:`decided_at` changes it; a failure after this one may, see ``until``."""
        return self.at_most is not None or self.reason in (NEXT_CAME, UNBOUNDED)

    @property
    def decided_at(self) -> int:
        """Of one that is final: the last clock whose loss matters; -1: none does."""
        if self.reason == UNBOUNDED:
            return -1
        return self.back if self.back is not None else self.until or 0

    @property
    def document(self) -> dict[str, object]:
        """As JSON knows it; ``reason`` only where it is not measured."""
        found: dict[str, object] = {
            "more_than": self.more_than,
            "at_most": self.at_most,
            "back": self.back,
            "predicted": self.predicted,
        }
        return found | ({"reason": self.reason} if self.reason else {})


def measured_costs(status: ClusterStatus, failures: Sequence[FailureRecord]) -> dict[int, MeasuredCost]:
    """By number of failure, from all losses of the job. Losses of a part of the data tell nothing."""
    whole = {clock: loss for clock, loss in status.losses.items() if clock not in status.fractions}
    return costs_in(LossSeries.of(whole), status.job, failures)


def costs_in(
    series: LossSeries, job: JobSpec | None, failures: Sequence[FailureRecord]
) -> dict[int, MeasuredCost]:
    """The same, from the losses of this job."""
    if job is None or job.consistency not in ("bsp", "ssp"):
        reason = "no job is known" if job is None else UNBOUNDED
        return {record.number: MeasuredCost(reason=reason) for record in failures}
    ahead = job.staleness if job.consistency == "ssp" else 0
    return {record.number: _record_cost(record, failures, series, ahead) for record in failures}


def _record_cost(
    record: FailureRecord, failures: Sequence[FailureRecord], series: LossSeries, ahead: int
) -> MeasuredCost:
    if not record.epoch or not record.clock:
        return MeasuredCost(reason="it is not healed yet, or came before the first clock was closed")
    until = next_failure(record, failures)
    measured = measure_cost(series, record.clock, ahead, until)
    return replace(measured, predicted=predict_cost(series, record.clock, ahead), until=until)


def next_failure(record: FailureRecord, failures: Sequence[FailureRecord]) -> int | None:
    """The clock of the first failure after this one; its own where that one's is not known yet."""
    others = [one.clock or record.clock for one in failures if one.number > record.number]
    return min(others, default=None)


def measure_cost(series: LossSeries, clock: int, ahead: int = 0, until: int | None = None) -> MeasuredCost:
    """The cost to reach the lowest loss of the clocks before ``clock``, which was open at the failure.

    ``ahead``: clocks by which workers may be before the slowest. The losses from ``clock`` to ``clock +
    ahead`` may be of values that were pulled before the failure, and tell nothing. ``until``: the clock of
    the next failure, which would be measured, too.
    """
    if not len(series.clocks):
        return MeasuredCost(reason="no loss is known: no worker reports any, or no shard has them any more")
    before = series.losses[: np.searchsorted(series.clocks, clock - ahead)]
    first = int(np.searchsorted(series.clocks, clock + ahead, side="right"))
    if not len(before) or first == len(series.clocks):
        return MeasuredCost(reason=f"no loss is known {'since' if len(before) else 'before'} the failure")
    lowest = int(before.argmin())
    reached = int(series.clocks[lowest])
    low = np.flatnonzero(series.losses[first:] <= before[lowest])
    back = first + int(low[0]) if len(low) else len(series.clocks)
    if until is not None and series.clocks[min(back, len(series.clocks) - 1)] >= until:
        return MeasuredCost(reason=NEXT_CAME)
    behind = int(series.clocks[back - 1]) - reached if back > first else 0
    if back == len(series.clocks):
        return MeasuredCost(behind, None, f"the loss is not back yet: more than {behind} clocks")
    again = int(series.clocks[back])
    return MeasuredCost(behind, again - reached, back=again)
