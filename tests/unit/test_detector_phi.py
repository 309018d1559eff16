"""φ accrual against scipy's normal tail."""

from __future__ import annotations

import math
import statistics
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scar_detector.core.phi import Intervals, phi

norm = pytest.importorskip("scipy.stats").norm


@given(silence=st.floats(0, 1e4), mean=st.floats(0.01, 5), deviation=st.floats(0.01, 5))
@settings(max_examples=300)
def test_equals_the_oracle(silence: float, mean: float, deviation: float) -> None:
    expected = -norm.logsf(silence, mean, deviation) / math.log(10)
    assert phi(silence, mean, deviation) == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_known_points() -> None:
    assert phi(1.0, 1.0, 0.1) == pytest.approx(math.log10(2))
    assert phi(0.0, 1.0, 0.01) == 0.0
    assert phi(0.1 + 5.612 * 0.05, 0.1, 0.05) == pytest.approx(8.0, abs=0.001)


@given(mean=st.floats(0.01, 1), deviation=st.floats(0.005, 1))
@settings(max_examples=50)
def test_grows_without_end(mean: float, deviation: float) -> None:
    values = [phi(mean + deviation * step / 4, mean, deviation) for step in range(400)]
    assert all(earlier < later < math.inf for earlier, later in pairwise(values))


def test_the_floor_keeps_a_calm_past_from_being_hasty() -> None:
    calm = Intervals(window=100, floor=0.05, longest=1.0)
    for _ in range(100):
        calm.add_interval(0.1)
    assert calm.phi(0.3) < 8 < calm.phi(0.4)


def test_one_pause_does_not_blind_for_the_whole_window() -> None:
    intervals = Intervals(window=100, floor=0.05, longest=1.0)
    for interval in [0.1] * 50 + [60.0] + [0.1] * 49:
        intervals.add_interval(interval)
    assert intervals.phi(0.8) > 8


def test_the_window_forgets() -> None:
    intervals = Intervals(window=10, floor=0.05, longest=1.0)
    assert intervals.phi(100.0) == 0.0
    for interval in [0.9] * 10 + [0.1] * 10:
        intervals.add_interval(interval)
    assert len(intervals) == 10
    assert intervals.phi(0.4) > 8


def test_what_is_added_after_a_question_counts_in_the_next_answer() -> None:
    intervals = Intervals(window=10, floor=0.05, longest=1.0)
    for _ in range(10):
        intervals.add_interval(0.1)
    before = intervals.phi(0.5)
    for _ in range(10):
        intervals.add_interval(0.5)
    assert intervals.phi(0.5) < 1 < before


def test_the_floor_is_under_every_deviation() -> None:
    """A past that is calm but not perfectly so is no reason for haste, either."""
    calm = Intervals(window=100, floor=0.05, longest=1.0)
    for number in range(100):
        calm.add_interval(0.1 + 0.001 * (number % 2))
    assert calm.phi(0.3) < 8


@given(st.lists(st.floats(0, 2), min_size=1, max_size=60))
def test_the_running_sums_are_those_of_the_window(seen: list[float]) -> None:
    intervals = Intervals(window=20, floor=0.05, longest=1.0)
    for interval in seen:
        intervals.add_interval(interval)
    window = [min(interval, 1.0) for interval in seen][-20:]
    expected = phi(1.5, statistics.fmean(window), max(0.05, statistics.pstdev(window)))
    assert intervals.phi(1.5) == pytest.approx(expected, rel=1e-5)
