"""float32 in two bytes: rounding as torch has it, and there and back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scar import Job, Table, momentum
from scar._client.core.pushes import ShardPush, TablePush, cut_blocks, merge_pushes
from scar._client.push_requests import pack_tables
from scar.bfloat16 import lengthen_values, nearest_short, round_to_bfloat16, shorten_values
from scar.errors import InvalidRequest, NonFinite, UnknownTable

JOB = Job(
    "short",
    [
        Table("w", (4, 2), rule=momentum(0.1)),
        Table("free", (4,), allow_nonfinite=True),
        Table("n", (4,), dtype="int64"),
        Table("d", (4,), dtype="float64"),
    ],
)
BEYOND = 3.3961776e38  # the first float32 that is nearer to infinity


def every_kind() -> np.ndarray:
    """Finite float32 of all exponents, ties, zeros, denormal ones."""
    bits = np.random.default_rng(3).integers(1 << 32, size=200_000, dtype=np.uint32)
    ties = (bits[:1000] & np.uint32(0xFFFF0000)) | np.uint32(0x8000)
    values = np.concatenate([bits, ties, np.array([0, 1 << 31, 1, 0x7FFF, 0x8000, 0x8001], np.uint32)])
    found = values.view(np.float32)
    return found[np.isfinite(found)]


def test_it_rounds_as_torch_does() -> None:
    import torch

    values = every_kind()
    expected = torch.from_numpy(values).bfloat16().float().numpy()
    np.testing.assert_array_equal(round_to_bfloat16(values).view(np.uint32), expected.view(np.uint32))


def test_what_is_rounded_survives_and_no_more_than_the_bound_is_lost() -> None:
    values = every_kind()
    values = values[np.abs(values) < BEYOND]
    rounded = round_to_bfloat16(values)
    lost = np.abs(rounded.astype(float) - values.astype(float))
    assert (lost <= np.maximum(2.0**-8 * np.abs(values.astype(float)), 2.0**-134)).all()
    short = shorten_values(rounded)
    assert short.nbytes * 2 == values.nbytes
    np.testing.assert_array_equal(lengthen_values(short).view(np.uint32), rounded.view(np.uint32))
    np.testing.assert_array_equal(round_to_bfloat16(rounded).view(np.uint32), rounded.view(np.uint32))


def test_a_push_is_rounded_where_it_was_asked_for_and_repeats_are_summed_before() -> None:
    values = np.array([[1 + 2**-8] * 2, [2**-8] * 2], np.float32)
    packed = pack_tables(JOB, {"w": values, "n": [7]}, None, {"w": [3, 3], "n": [0]}, ["w"])
    assert (packed["w"].short, packed["n"].short) == (True, False)
    assert packed["w"].values.tolist() == [1 + 2**-7] * 2
    assert not pack_tables(JOB, "w", np.zeros((4, 2)), None, ())["w"].short


def test_what_cannot_be_short_is_said() -> None:
    for name, kind in (("n", "int64"), ("d", "float64"), ("free", "float32 with allow_nonfinite")):
        with pytest.raises(InvalidRequest, match=f"table {name} is {kind}: only finite float32"):
            pack_tables(JOB, name, np.zeros(4, np.int64), None, [name])
    with pytest.raises(NonFinite, match="largest of bfloat16"):
        pack_tables(JOB, "w", np.full((4, 2), BEYOND, np.float32), None, ["w"])
    with pytest.raises(InvalidRequest, match="bfloat16 names d, which"):
        pack_tables(JOB, "w", np.zeros((4, 2)), None, ["d"])
    with pytest.raises(UnknownTable):
        pack_tables(JOB, "x", np.zeros(4), None, ["x"])


def test_parts_of_a_push_stay_short_and_a_sum_of_several_does_not() -> None:
    ids = np.array([0, 2], np.uint32)
    one = TablePush(ids, np.ones(4, np.float32), short=True)
    assert cut_blocks(JOB, "w", one, np.array([1])).short
    pushes = [
        ShardPush(number, 0, {"w": TablePush(ids, one.values * f, short=True)})
        for number, f in ((1, 1), (2, 2**-9))
    ]
    merged = merge_pushes(JOB, pushes).tables["w"]
    assert not merged.short
    assert merged.values.tolist() == [1 + 2**-9] * 4


@given(values=st.lists(st.floats(width=32), min_size=1, max_size=40))
def test_any_value_is_shortened_to_the_nearest_and_keeps_its_kind(values: list[float]) -> None:
    exact = np.array(values, np.float32)
    found = lengthen_values(nearest_short(exact))
    np.testing.assert_array_equal(np.isnan(found), np.isnan(exact))
    np.testing.assert_array_equal(np.isinf(found), np.isinf(exact))
    finite = np.isfinite(exact)
    error = np.abs(found[finite].astype(np.float64) - exact[finite])
    assert (error <= np.maximum(np.abs(exact[finite].astype(np.float64)) * 2**-7, 2.0**-133)).all()


def test_a_nan_whose_payload_is_cut_off_stays_nan() -> None:
    found = lengthen_values(nearest_short(np.array([0x7F800001], "<u4").view(np.float32)))
    assert np.isnan(found).all()
