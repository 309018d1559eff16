"""Predicted costs on a training that comes nearer to its solution by one rate, where both ways are exact."""

from __future__ import annotations

import numpy as np
import pytest

from experiments import calibration, recovery_trials
from scar_compare.experiment import ExperimentOptions
from tests.unit.test_experiments_recovery_trials import RATE, Line


def test_both_ways_are_right_where_the_theorem_is_tight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything goes back to a checkpoint of up to 7 iterations before: that many have to be done again."""
    monkeypatch.setattr(recovery_trials, "load_workload", lambda panel, thin: Line())
    monkeypatch.setattr(calibration, "load_workload", lambda panel, thin: Line())
    options = ExperimentOptions(panels=("mlr-digits",), trials=10)
    (batch,) = calibration.plan_batches(options)
    records = [record | {"panel": "mlr-digits"} for record in batch.work(batch.trials)]
    checked = 0
    for record in records:
        full = record["cases"]["full"]
        since = max(1, record["failed"] % 8)
        assert abs(full["measured"] - since) <= 1  # a loss that is the same but for its last digit
        if record["failed"] >= 16:
            checked += 1
            assert full["loss"] == pytest.approx(since, abs=0.1)
            assert full["norm"] == pytest.approx(since, abs=0.01)
    assert checked > 3
    report = calibration.make_report(options, records)
    assert report.summary["panels"]["mlr-digits"]["norm"]["within"]["value"] > 0.8


def test_steps_that_do_not_shrink_predict_nothing() -> None:
    assert calibration.predict_by_norm([1.0, 1.0, 1.1], 0.5) is None
    steps = [(1 - RATE) * RATE**k for k in range(20)]
    assert calibration.predict_by_norm(steps, 0.0) == 1
    left = RATE**20
    lost = calibration.predict_by_norm(steps, left * (RATE**-2 - 1))
    assert lost == pytest.approx(2)


def test_shares_count_what_is_within_a_factor_of_two() -> None:
    cases = [
        {"measured": 1, "loss": 1.9, "norm": None},
        {"measured": 4, "loss": 1.9, "norm": 4.0},
        {"measured": 4, "loss": 8.0, "norm": 9.0},
        {"measured": None, "loss": 8.0, "norm": 9.0},
    ]
    by_loss, by_norm = (calibration.calibration_of(cases, way) for way in ("loss", "norm"))
    assert (by_loss["failures"], by_loss["predictions"], by_loss["within"]["value"]) == (4, 3, 2 / 3)
    assert (by_loss["costly"]["value"], by_loss["costly"]["of"]) == (0.5, 2)
    assert by_loss["median"] == 1.9
    assert (by_norm["within"]["value"], by_norm["within"]["of"]) == (0.5, 2)
    assert by_norm["within"]["low"] < 0.5 < by_norm["within"]["high"]
    nothing = calibration.calibration_of([cases[3]], "loss")
    assert (nothing["within"], nothing["median"]) == (None, None)
    assert np.isfinite(by_norm["median"])
