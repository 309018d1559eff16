"""The loss of a long run as a bounded number of points, and what a viewer makes of its steps."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scar_runtime.loss_curve import CurvePoint, LossCurve, extreme_points


def test_a_short_run_is_shown_as_it_is() -> None:
    curve = LossCurve()
    assert curve.add_losses({1: 0.5, 0: 1.0}) == 0
    assert curve.points_from() == [(0, 1.0), (1, 0.5)]


def test_a_long_run_stays_bounded_and_keeps_its_ends_its_peak_and_its_dip() -> None:
    curve = LossCurve(limit=50)
    losses = dict.fromkeys(range(100000), 1.0) | {54_321: 9.0, 77_777: -3.0, 99_999: 2.0}
    curve.add_losses(losses)
    points = curve.points_from()
    assert len(points) <= 4 * 50
    assert {(0, 1.0), (54_321, 9.0), (77_777, -3.0), (99_999, 2.0)} <= set(points)
    assert points == sorted(points)


def test_it_thins_by_clocks_not_by_how_often_somebody_looked() -> None:
    source = random.Random(3)
    losses = {clock: source.random() for clock in range(3000)}
    at_once = LossCurve(limit=20)
    at_once.add_losses(losses)
    by_and_by = LossCurve(limit=20)
    for clock in range(0, 3000, 7):
        by_and_by.add_losses({one: losses[one] for one in range(max(0, clock - 9), min(3000, clock + 7))})
    assert by_and_by.points_from() == at_once.points_from()


def test_a_loss_that_cannot_be_drawn_is_left_out() -> None:
    curve = LossCurve()
    assert curve.add_losses({0: math.nan, 1: math.inf}) == -1
    assert curve.add_losses({2: 1.0, 3: math.nan}) == 2
    assert curve.points_from() == [(2, 1.0)]


def test_what_was_known_changes_nothing() -> None:
    curve = LossCurve()
    curve.add_losses({0: 1.0, 1: 2.0})
    assert curve.add_losses({0: 1.0, 1: 2.0}) == -1


@pytest.mark.parametrize("clock", [10**6, 10**12])
def test_a_run_that_was_resumed_begins_anywhere(clock: int) -> None:
    curve = LossCurve(limit=10)
    curve.add_losses({clock + one: float(one) for one in range(10)})
    assert len(curve.points_from()) == 10


@given(st.lists(st.dictionaries(st.integers(0, 300), st.floats(-5, 5), max_size=20), max_size=12))
def test_a_viewer_who_takes_every_step_has_all_points(looks: list[dict[int, float]]) -> None:
    """A step takes the place of all points from its first clock on, as `chart.js` does it."""
    curve = LossCurve(limit=8)
    seen: list[CurvePoint] = []
    for losses in looks:
        since = curve.add_losses(losses)
        if since >= 0:
            seen = [point for point in seen if point[0] < since] + curve.points_from(since)
        assert seen == curve.points_from()
        assert len(seen) <= 4 * 8


def test_when_intervals_grow_all_points_are_sent_again() -> None:
    curve = LossCurve(limit=8)
    curve.add_losses(dict.fromkeys(range(8), 1.0))
    assert (curve.add_losses({8: 1.0}), curve.width) == (0, 2)
    assert (curve.add_losses({9: 1.0}), curve.width) == (8, 2)


def test_of_an_interval_the_first_the_last_the_lowest_and_the_highest_stay() -> None:
    points = [(0, 3.0), (1, 5.0), (2, 4.0), (3, 1.0), (4, 2.0)]
    assert extreme_points(points) == [(0, 3.0), (1, 5.0), (3, 1.0), (4, 2.0)]
    assert extreme_points([(7, 1.0), (7, 1.0)]) == [(7, 1.0)]
