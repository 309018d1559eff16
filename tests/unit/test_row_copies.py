"""Rows are copied in C, on several processors, as numpy copies them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scar import row_copies
from scar.row_copies import all_finite, copy_elements, gather_rows, gather_rows_into, scatter_rows

DTYPES = ("uint8", "float32", "float64", "int64")
LIMIT = 40


PARTS = pytest.mark.parametrize("parts", [1, 2, 3, 8])


@contextmanager
def copied_in(parts: int) -> Iterator[None]:
    """However small; 1: by numpy."""
    if parts > 1 and row_copies._library is None:
        assert shutil.which("cc") is None, "there is a compiler: run pip install -e ."
        pytest.skip("no C compiler on this machine: numpy does everything")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_copies, "_parts", lambda *_: parts)
        yield


def rows_of(dtype: str, width: int) -> np.ndarray:
    return np.arange(LIMIT * width).astype(dtype)


@PARTS
@given(
    at=st.lists(st.integers(0, LIMIT - 1), max_size=60),
    width=st.sampled_from([1, 3, 64, 300]),
    dtype=st.sampled_from(DTYPES),
)
def test_gathered_rows_are_those_that_were_asked_for(parts, at, width, dtype) -> None:
    flat = rows_of(dtype, width)
    places = np.array(at, np.int64)
    expected = flat.reshape(-1, width)[places].reshape(-1)
    packed = np.zeros_like(expected)
    with copied_in(parts):
        np.testing.assert_array_equal(gather_rows(flat, width, places), expected)
        gather_rows_into(flat, width, places, packed)
    np.testing.assert_array_equal(packed, expected)


@PARTS
@given(at=st.lists(st.integers(-1, LIMIT - 1), max_size=60), width=st.sampled_from([1, 3, 64, 300]))
def test_places_without_a_row_stay_as_they_are(parts, at, width) -> None:
    flat = rows_of("float32", width) + 1
    places = np.array(at, np.int64)
    packed = np.full(len(at) * width, -7, np.float32)
    with copied_in(parts):
        gather_rows_into(flat, width, places, packed, partly=True)
    expected = np.where(places[:, None] >= 0, flat.reshape(-1, width)[places], -7)
    np.testing.assert_array_equal(packed.reshape(-1, width), expected)


@PARTS
@given(
    at=st.lists(st.integers(0, LIMIT - 1), max_size=LIMIT, unique=True),
    width=st.sampled_from([1, 3, 64, 300]),
    dtype=st.sampled_from(DTYPES),
)
def test_scattered_rows_go_to_their_places_and_nowhere_else(parts, at, width, dtype) -> None:
    flat = np.zeros(LIMIT * width, dtype)
    expected = flat.reshape(-1, width).copy()
    places = np.array(at, np.int64)
    packed = rows_of(dtype, width)[: len(at) * width]
    with copied_in(parts):
        scatter_rows(flat, width, places, packed)
    expected[places] = packed.reshape(-1, width)
    np.testing.assert_array_equal(flat.reshape(-1, width), expected)


@pytest.mark.parametrize("row", [-2, -1, LIMIT, 2**62])
@pytest.mark.parametrize("parts", [2, 3])
def test_a_row_that_is_not_there_changes_nothing(parts, row) -> None:
    flat = rows_of("float32", 4)
    before = flat.copy()
    packed = np.zeros(8, np.float32)
    with copied_in(parts), pytest.raises(IndexError, match="40"):
        gather_rows_into(flat, 4, np.array([0, row]), packed)
    with copied_in(parts), pytest.raises(IndexError, match="40"):
        scatter_rows(flat, 4, np.array([0, row]), packed)
    assert not packed.any()
    np.testing.assert_array_equal(flat, before)


@PARTS
@pytest.mark.parametrize("count", [0, 1, 7, 1000])
def test_elements_are_copied_and_cast(parts, count) -> None:
    source = np.arange(count, dtype=np.float32)
    for dtype in ("float32", "float64"):
        target = np.full(count, -1, dtype)
        with copied_in(parts if dtype == "float32" else 1):
            copy_elements(target, source)
        np.testing.assert_array_equal(target, source)


@PARTS
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("odd", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("at", [0, 4095, 4096, 9_999])
def test_one_value_that_is_not_finite_is_found_anywhere(parts, dtype, odd, at) -> None:
    values = np.full(10_000, np.finfo(dtype).max, dtype)
    values[1::2] = np.finfo(dtype).smallest_subnormal
    values[2::3] *= -1
    with copied_in(parts):
        assert all_finite(values)
        values[at] = odd
        assert not all_finite(values)


@PARTS
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf, None])
@pytest.mark.parametrize("at", [0, 2047, 2048, 9_999])
def test_what_is_copied_is_looked_at_as_it_is_copied(parts, dtype, odd, at) -> None:
    source = np.full(10_000, np.finfo(dtype).max, dtype)
    source[at] = source[at] if odd is None else odd
    rows = np.arange(1000)
    with copied_in(parts):
        copied, gathered = np.zeros_like(source), np.zeros_like(source)
        assert copy_elements(copied, source, look=True) == (odd is None)
        assert gather_rows_into(source, 10, rows, gathered, look=True) == (odd is None)
        assert copy_elements(np.zeros_like(source), source)
        assert gather_rows_into(source, 10, rows, np.zeros_like(source))
        others = np.delete(rows, at // 10)
        assert gather_rows_into(source, 10, others, np.zeros(9_990, dtype), look=True)
    if odd is None:
        np.testing.assert_array_equal(copied, source)
    np.testing.assert_array_equal(gathered, source)


def test_large_copies_are_made_in_c_where_there_are_processors(monkeypatch) -> None:
    if row_copies._library is None:
        pytest.skip("no C compiler on this machine: numpy does everything")
    monkeypatch.setattr(row_copies, "count_parts", lambda size: 2 if size >= 1 << 20 else 1)
    monkeypatch.setattr(np, "take", None)  # whoever calls it fails
    flat = np.arange(1 << 20, dtype=np.float32)
    at = np.arange(0, 1 << 14, dtype=np.int64)[::-1]
    packed = gather_rows(flat, 64, at)
    np.testing.assert_array_equal(packed.reshape(-1, 64), flat.reshape(-1, 64)[::-1])


def test_calls_that_are_made_at_once_do_not_disturb_each_other() -> None:
    """A thread that comes too late for one call finds nothing to do, and nothing of it in use."""
    flat = np.arange(50_000, dtype=np.float32)
    at = np.random.default_rng(0).permutation(5_000)
    expected = flat.reshape(-1, 10)[at].reshape(-1)

    def gather(_: int) -> bool:
        packed = np.zeros_like(flat)
        return gather_rows_into(flat, 10, at, packed, look=True) and bool((packed == expected).all())

    with copied_in(8), ThreadPoolExecutor(8) as pool:
        assert all(pool.map(gather, range(400)))
