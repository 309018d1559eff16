"""Blocks are written to their places, and taken from them, whatever their sizes and the order asked for."""

from __future__ import annotations

import numpy as np
import pytest

from scar.blocks import Layout
from scar.row_copies import all_finite

SIZES = {"even": [3] * 5, "odd last": [3, 3, 3, 3, 2], "ragged": [1, 4, 2, 3, 5], "single": [1] * 5}


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("given", [np.float32, np.float64, np.int32])
@pytest.mark.parametrize("positions", [[0, 1, 2, 3, 4], [1, 3], [0, 4], [4], []])
def test_scattered_blocks_are_where_they_belong_in_the_dtype_of_the_array(sizes, given, positions):
    layout = Layout(np.array(sizes))
    at = np.array(positions, np.int64)
    flat = np.full(layout.elements, -1, np.float32)
    packed = np.arange(layout.count_elements(at)).astype(given)
    layout.scatter(flat, at, packed)
    assert layout.gather(flat, at).tolist() == packed.tolist()
    others = np.setdiff1d(np.arange(5), at)
    assert (layout.gather(flat, others) == -1).all()


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_blocks_are_picked_in_any_order_with_repeats(sizes):
    layout = Layout(np.array(sizes))
    flat = np.arange(layout.elements)
    at = np.array([4, 0, 4, 2, 1])
    wanted = np.concatenate([flat[layout.starts[one] : layout.starts[one + 1]] for one in at])
    assert layout.pick(flat, at).tolist() == wanted.tolist()


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", [0, 1 << 18, (1 << 18) + 1, -1])
def test_one_value_that_is_not_finite_is_found_wherever_it_is(wrong, where):
    values = np.full((1 << 19) + 1, 3e38, np.float32)
    assert all_finite(values)
    assert all_finite(values[:0])
    values[where] = wrong
    assert not all_finite(values)
