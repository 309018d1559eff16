"""What a run proves: every oracle over everything that was recorded. Pure; logs are never read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from scar.placement import Epoch
from scar.tables import Job
from scar.v1 import recovery_pb2
from scar_chaos import checkers, promises
from scar_chaos.checkers import Losses, Surplus, Violation
from scar_chaos.counting import initial
from scar_chaos.history import History


@dataclass(frozen=True)
class Records:
    """All that there is to judge, of one job, at a moment when no worker has a push on its way.

    ``values``: one per block, by table, as a reader saw them; ``saved``: as a restore from the store alone gives them.
    """

    job: Job
    epochs: Sequence[Epoch]
    ledger: Sequence[recovery_pb2.FailureRecord]
    history: History
    values: Mapping[str, np.ndarray]
    saved: Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Verdict:
    """``violations``: in words; none: every guarantee held. ``missing``, ``doubled``: blocks whose value is too low or high."""

    violations: tuple[str, ...] = ()
    missing: int = 0
    doubled: int = 0

    def enforce(self) -> None:
        """Raises :class:`Violation` with all of them."""
        if self.violations:
            raise Violation("; ".join(self.violations))


def judged(records: Records) -> Verdict:
    job, epochs, past = records.job, records.epochs, records.history
    checks: list[Callable[[], None]] = [
        lambda: promises.kept(job, epochs, records.ledger, past),
        lambda: checkers.epochs_linear(job, epochs),
        lambda: checkers.never_torn(past),
        lambda: checkers.never_ahead(records.saved, records.values),
    ]
    if not (job.strategy.rollback or job.worker_strategy.rollback):
        checks.append(lambda: checkers.never_backwards(past, epochs))
    surplus = checkers.surplus(job, initial(job), past, Losses(records.ledger, epochs, past.seen), records.values)
    wrong = [text for check in checks if (text := _violation(check))] + _told(surplus)
    missing = sum(block.extra < 0 for block in surplus)
    return Verdict(tuple(wrong), missing, len(surplus) - missing)


def _violation(check: Callable[[], None]) -> str:
    try:
        check()
    except Violation as violation:
        return str(violation)
    return ""


def _told(surplus: Sequence[Surplus], most: int = 3) -> list[str]:
    """The first few; one wrong push touches many blocks."""
    more = len(surplus) - most
    return [block.text for block in surplus[:most]] + ([f"and {more} more blocks"] if more > 0 else [])
