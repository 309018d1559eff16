"""What failures have cost, in clocks, as the losses since show it. Pure.

Iteration cost is the number of extra iterations to reach a loss (seed 000, section 3). The lowest loss before
a failure is one for which no undisturbed twin is needed: the run itself had reached it, at a clock that is
known. So the cost to reach that loss is the clocks from there until the loss is as low again. The cost to
reach a lower loss may differ.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scar.v1.recovery_pb2 import FailureRecord
from scar_admin.status import ClusterStatus


@dataclass(frozen=True)
class MeasuredCost:
    """Above ``more_than`` and at most ``at_most`` clocks; None: not measured, and ``reason`` says why."""

    more_than: int | None = None
    at_most: int | None = None
    reason: str = ""

    @property
    def text(self) -> str:
        """``<=2`` where no loss since narrows it to one clock."""
        if self.at_most is None:
            return "-"
        return str(self.at_most) if self.more_than == self.at_most - 1 else f"<={self.at_most}"


def measured_costs(status: ClusterStatus, failures: Sequence[FailureRecord]) -> dict[int, MeasuredCost]:
    """By number of failure, from all losses of the job. Losses of a part of the data tell nothing."""
    losses = {
        clock: loss
        for clock, loss in status.losses.items()
        if clock not in status.fractions and math.isfinite(loss)
    }
    if status.job is None or status.job.consistency not in ("bsp", "ssp"):
        reason = (
            "no job is known" if status.job is None else "no clock bounds how old pulled values are in asp"
        )
        return {record.number: MeasuredCost(reason=reason) for record in failures}
    ahead = status.job.staleness if status.job.consistency == "ssp" else 0
    return {record.number: _record_cost(record, failures, losses, ahead) for record in failures}


def _record_cost(
    record: FailureRecord, failures: Sequence[FailureRecord], losses: Mapping[int, float], ahead: int
) -> MeasuredCost:
    if not record.epoch or not record.clock:
        return MeasuredCost(reason="it is not healed yet, or came before the first clock was closed")
    others = [one.clock or record.clock for one in failures if one.number > record.number]
    return measure_cost(losses, record.clock, ahead, min(others, default=None))


def measure_cost(
    losses: Mapping[int, float], clock: int, ahead: int = 0, until: int | None = None
) -> MeasuredCost:
    """The cost to reach the lowest loss of the clocks before ``clock``, which was open at the failure.

    ``ahead``: clocks by which workers may be before the slowest. The losses from ``clock`` to ``clock +
    ahead`` may be of values that were pulled before the failure, and tell nothing. ``until``: the clock of
    the next failure, which would be measured, too.
    """
    before = {at: loss for at, loss in losses.items() if at < clock - ahead}
    after = sorted(at for at in losses if at > clock + ahead)
    if not losses:
        return MeasuredCost(reason="no loss is known: no worker reports any, or no shard has them any more")
    if not before or not after:
        return MeasuredCost(reason=f"no loss is known {'since' if before else 'before'} the failure")
    reached = min(before, key=lambda at: (before[at], at))
    above = reached
    for at in after:
        if until is not None and at >= until:
            return MeasuredCost(reason="the next failure came before the loss was back")
        if losses[at] <= before[reached]:
            return MeasuredCost(above - reached, at - reached)
        above = at
    return MeasuredCost(
        above - reached, None, f"the loss is not back yet: more than {above - reached} clocks"
    )
