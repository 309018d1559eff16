"""What a run proves: every oracle over everything that was recorded. Logs are never read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from scar.placement import Epoch
from scar.tables import Job
from scar.v1.recovery_pb2 import FailureRecord
from scar_chaos.core.counting_job import initial_values
from scar_chaos.oracles import checkers
from scar_chaos.oracles.exactly_once import BlockSurplus, ReportedLoss, SettledPushes, find_surplus
from scar_chaos.oracles.history import History, ReturnedBlocks
from scar_chaos.oracles.ledger_audit import audit_ledger
from scar_chaos.oracles.reported_losses import LossesByShard, check_losses
from scar_chaos.oracles.strategy_promises import check_promises
from scar_chaos.oracles.violation import Violation

MOST_BLOCKS = 3  # that are named; one wrong push touches many


@dataclass(frozen=True)
class RunRecords:
    """All that there is to judge, of one job, at a moment when no worker has a push on its way.

    ``values``: one per block, by table, as a reader saw them; ``saved``: as a restore from the store alone
    gives them; ``returned``: what recoveries put back, as far as it can still be read; ``observed``:
    violations that the target itself saw; ``losses``: what each shard reports; ``settled``: what earlier
    verdicts of this run have found out about uncertain pushes.
    """

    job: Job
    epochs: Sequence[Epoch]
    ledger: Sequence[FailureRecord]
    history: History
    values: Mapping[str, np.ndarray]
    saved: Mapping[str, np.ndarray]
    returned: Sequence[ReturnedBlocks] = ()
    observed: Sequence[str] = ()
    losses: LossesByShard = ()
    settled: SettledPushes = field(default_factory=SettledPushes)


@dataclass(frozen=True)
class Verdict:
    """``violations``: in words; none: every guarantee held.

    ``missing``, ``doubled``: blocks whose value is too low or high.
    """

    violations: tuple[str, ...] = ()
    missing: int = 0
    doubled: int = 0

    def enforce(self) -> None:
        """Raises :class:`Violation` with all of them."""
        if self.violations:
            raise Violation("; ".join(self.violations))


def judge_run(records: RunRecords) -> Verdict:
    """Run every oracle."""
    violations = list(records.observed)
    for check in _checks(records):
        try:
            check()
        except Violation as violation:
            violations.append(str(violation))
    initial = initial_values(records.job)
    reported = ReportedLoss(records.ledger, records.epochs, records.history.newest_epochs)
    surplus = find_surplus(records.job, initial, records.history, reported, records.values, records.settled)
    missing = sum(block.extra < 0 for block in surplus)
    return Verdict((*violations, *_describe(surplus)), missing, len(surplus) - missing)


def _checks(records: RunRecords) -> list[Callable[[], None]]:
    """Each raises :class:`Violation`."""
    job = records.job
    epochs = records.epochs
    history = records.history
    checks: list[Callable[[], None]] = [
        partial(check_promises, job, epochs, records.ledger, history),
        partial(checkers.epochs_linear, job, epochs),
        partial(checkers.never_torn, history),
        partial(checkers.never_ahead, records.saved, records.values),
        partial(check_losses, job, epochs, history, initial_values(job), records.losses),
        *audit_ledger(job, epochs, records.ledger, history, records.returned),
    ]
    if not (job.strategy.rollback or job.worker_strategy.rollback):
        checks.append(partial(checkers.never_backwards, history, epochs))
    return checks


def _describe(surplus: Sequence[BlockSurplus]) -> list[str]:
    texts = [block.text for block in surplus[:MOST_BLOCKS]]
    more = len(surplus) - MOST_BLOCKS
    if more > 0:
        texts.append(f"and {more} more blocks")
    return texts
