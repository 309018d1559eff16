"""The metrics beside the loss: few, and thinned."""

from __future__ import annotations

from scar.losses import EARLY_STOPPING, EVALUATIONS
from scar_runtime.metric_curves import INTERVALS, MAX_METRICS, MetricCurves


def test_it_says_what_has_changed() -> None:
    known = MetricCurves()
    assert known.add_metrics({3: {"accuracy": 0.5, "error": 2.0}, 4: {"accuracy": 0.625}}) == {
        "accuracy": 3,
        "error": 3,
    }
    assert known.add_metrics({4: {"accuracy": 0.625}, 5: {"accuracy": 0.75}}) == {"accuracy": 5}
    assert known.add_metrics({5: {"accuracy": 0.75}}) == {}
    assert known.curves["accuracy"].points_from() == [(3, 0.5), (4, 0.625), (5, 0.75)]


def test_what_others_have_seen_comes_beside_it() -> None:
    known, other = MetricCurves(), MetricCurves()
    known.add_metrics({5: {"accuracy": 0.75}})
    other.add_metrics({2: {"accuracy": 0.25, "error": 1.0}})
    assert known.add_curves(other) == {"accuracy": 2, "error": 2}
    assert known.add_curves(other) == {}
    assert known.curves["accuracy"].points_from() == [(2, 0.25), (5, 0.75)]


def test_metrics_that_workers_tell_each_other_are_nobodys() -> None:
    known = MetricCurves()
    known.add_metrics({1: {EARLY_STOPPING: 1.0, EVALUATIONS: 1.0, "accuracy": 0.5}})
    assert list(known.curves) == ["accuracy"]


def test_however_many_there_are_a_few_are_kept_and_thinned() -> None:
    known = MetricCurves()
    known.add_metrics({0: {"z": 1.0}})
    for clock in range(0, 100_000, 50):
        known.add_metrics({clock: {f"metric-{number:02}": float(clock % 7) for number in range(40)}})
    assert len(known.curves) == MAX_METRICS
    assert "z" in known.curves, "those that came first stay"
    assert max(len(curve.points_from()) for curve in known.curves.values()) <= 4 * INTERVALS
