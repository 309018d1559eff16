"""Curves of block characters."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from scar_cli.chart import draw_curve


def test_a_falling_curve_falls() -> None:
    assert draw_curve([8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0], 8, 1) == ["█▇▆▅▄▃▂▁"]


def test_rows_are_stacked() -> None:
    assert draw_curve([0.0, 1.0], 2, 2) == [" █", "▁█"]


def test_more_values_than_columns_are_averaged() -> None:
    assert draw_curve([0.0, 2.0, 4.0, 6.0], 2, 1) == ["▁█"]


def test_a_constant_is_in_the_middle_and_nothing_is_nothing() -> None:
    assert draw_curve([3.0, 3.0], 5, 1) == ["▅▅"]
    assert draw_curve([], 5, 2) == ["", ""]


def test_what_is_not_finite_leaves_a_gap() -> None:
    assert draw_curve([1.0, math.nan, math.inf, 0.0], 4, 1) == ["█  ▁"]
    assert draw_curve([math.nan], 4, 1) == [""]


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=300), st.integers(1, 80), st.integers(1, 6))
def test_it_always_fits(values: list[float], width: int, height: int) -> None:
    lines = draw_curve(values, width, height)
    assert len(lines) == height
    assert {len(line) for line in lines} == {min(width, len(values))}
    assert all(character != " " for character in lines[-1])
