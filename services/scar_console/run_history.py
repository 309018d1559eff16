"""What the page remembers of one run, bounded: losses, clocks by time, repairs, and what failures cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from scar.v1.recovery_pb2 import FailureRecord, HistorySample
from scar_admin.iteration_costs import MeasuredCost, costs_in, next_failure
from scar_admin.status import LATE_CLOCKS, ClusterStatus
from scar_console.page_model import is_repaired
from scar_console.push_rates import PushRates
from scar_console.whole_losses import WholeLosses
from scar_runtime.progress_history import ProgressHistory

MISSED_CLOCKS = 4096  # that are asked for again at most, however long a shard does not answer


@dataclass
class RunHistory:
    """``epoch``, ``newest``: highest epoch and clock with a loss; ``heard``: that clock when all shards had
    answered.

    ``repaired``: failures that were so at the last look; None: there was none. ``healed``: the clock at which
    a failure was first seen repaired, ``costs``: what it has cost, by number. ``fresh_metrics``: from which
    clock on the last look has changed them, by name.
    """

    job: str = ""
    epoch: int = 0
    newest: int = -1
    heard: int = -1
    progress: ProgressHistory = field(default_factory=ProgressHistory)
    fresh_metrics: dict[str, int] = field(default_factory=dict)
    whole: WholeLosses = field(default_factory=WholeLosses)
    healed: dict[int, int] = field(default_factory=dict)
    costs: dict[int, MeasuredCost] = field(default_factory=dict)
    repaired: frozenset[int] | None = None
    rates: PushRates = field(default_factory=PushRates)

    def is_of(self, status: ClusterStatus) -> bool:
        """Numbers of epochs only grow; where one is lower, the job was removed and began anew."""
        return status.job is None or (status.job.name == self.job and not 0 < status.number < self.epoch)

    @property
    def ask_from(self) -> int:
        """The clock from which on the next look asks for losses: those again that a silent shard may know."""
        return max(0, self.heard - LATE_CLOCKS, self.newest - MISSED_CLOCKS)

    def note_look(self, status: ClusterStatus, time: float) -> int:
        """``time``: of the look, in seconds since 1970.

        Returns from which clock on the curve has changed; -1: it has not.
        """
        self.epoch = max(self.epoch, status.number)
        self.newest = max(self.newest, status.loss_clock)
        if not status.silent_shards:
            self.heard = self.newest
        self.fresh_metrics = self.progress.metrics.add_metrics(status.metrics)
        samples = self.progress.samples
        if status.shards and status.workers and status.clock >= (samples[-1].clock if samples else 0):
            sample = HistorySample(time=time, clock=status.clock, epoch=status.number)
            self.progress.add_samples([sample])
        return self.progress.curve.add_losses(status.losses)

    def note_earlier(self, history: ProgressHistory) -> bool:
        """What was seen of the run before anybody looked, of which shards may know the end alone. Whether the
        curve has changed.
        """
        self.progress.add_samples(history.samples)
        self.fresh_metrics |= self.progress.metrics.add_curves(history.metrics)
        return self.progress.add_losses(dict(history.curve.points_from()))

    def note_failures(self, status: ClusterStatus, failures: Sequence[FailureRecord]) -> None:
        self._note_repairs(failures, status.clock)
        new = self.whole.add({at: loss for at, loss in status.losses.items() if at not in status.fractions})
        known = {one.number: self.costs[one.number] for one in failures if self._is_known(one, failures, new)}
        if any(record.number not in known for record in failures):
            known = costs_in(self.whole.series(), status.job, failures) | known
        self.costs = {record.number: known[record.number] for record in failures}

    def _is_known(self, record: FailureRecord, failures: Sequence[FailureRecord], new: float) -> bool:
        """The ledger may tell of a next failure, or its clock, after the loss was seen to be back; and a look
        that a shard did not answer in time lacks losses, which come with later ones. ``new``: the first
        clock of which this look has brought a loss.
        """
        cost = self.costs.get(record.number)
        if cost is None or not cost.final or new <= cost.decided_at:
            return False
        return cost.until == next_failure(record, failures)

    def _note_repairs(self, failures: Sequence[FailureRecord], clock: int) -> None:
        """Those of the first look may have been repaired at any clock before."""
        repaired = {record.number: record.clock for record in failures if is_repaired(record)}
        if self.repaired is not None:
            fresh = {number: max(clock, at) for number, at in repaired.items() if number not in self.repaired}
            self.healed = {number: at for number, at in (self.healed | fresh).items() if number in repaired}
        self.repaired = frozenset(repaired)
