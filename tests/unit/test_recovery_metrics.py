"""What the recovery coordinator exposes before anything has happened."""

from __future__ import annotations

import inspect
import re

from scar.placement import END
from scar_recovery import metrics
from scar_recovery.core import next_epoch


def test_epochs_of_every_cause_are_counted_from_zero() -> None:
    """A counter that appears with its first event shows no increase."""
    causes = {"start", END, *re.findall(r'"(\w+)"', inspect.getsource(next_epoch._cause))}
    assert causes > {"failure", "join"}
    (family,) = metrics.EPOCHS.collect()
    counted = {sample.labels["cause"] for sample in family.samples if sample.name.endswith("_total")}
    assert causes <= counted
