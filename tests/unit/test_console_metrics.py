"""The metrics beside the loss: few, thinned, and sent once."""

from __future__ import annotations

from scar.losses import EARLY_STOPPING, EVALUATIONS
from scar_console.metric_curves import INTERVALS, MAX_METRICS, MetricCurves


def test_a_look_sends_what_is_new() -> None:
    curves = MetricCurves()
    curves.note_look({3: {"accuracy": 0.5, "error": 2.0}, 4: {"accuracy": 0.625}})
    assert curves.whole() == {
        "accuracy": {"from": 0, "clocks": [3, 4], "losses": [0.5, 0.625]},
        "error": {"from": 0, "clocks": [3], "losses": [2.0]},
    }
    curves.note_look({4: {"accuracy": 0.625}, 5: {"accuracy": 0.75}})
    assert curves.step() == {"accuracy": {"from": 5, "clocks": [5], "losses": [0.75]}}
    curves.note_look({5: {"accuracy": 0.75}})
    assert curves.step() == {}


def test_metrics_that_workers_tell_each_other_are_nobodys() -> None:
    curves = MetricCurves()
    curves.note_look({1: {EARLY_STOPPING: 1.0, EVALUATIONS: 1.0, "accuracy": 0.5}})
    assert list(curves.whole()) == ["accuracy"]


def test_however_many_there_are_a_few_are_kept_and_thinned() -> None:
    curves = MetricCurves()
    curves.note_look({0: {"z": 1.0}})
    for clock in range(0, 100_000, 50):
        curves.note_look({clock: {f"metric-{number:02}": float(clock % 7) for number in range(40)}})
    whole = curves.whole()
    assert len(whole) == MAX_METRICS
    assert "z" in whole, "those that came first stay"
    assert max(len(curve["clocks"]) for curve in whole.values()) <= 4 * INTERVALS
