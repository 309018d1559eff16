"""Memory that the kernel has given already: arrays of their own, zero, and as many as there is room for."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scar_runtime.process.memory import ReadyArrays, TouchedMemory

DTYPES = st.sampled_from([np.dtype(name) for name in ("float32", "float64", "int64", "uint8")])


@given(st.lists(st.tuples(st.integers(0, 50), DTYPES), max_size=6))
def test_as_many_arrays_as_were_announced_lie_in_it_side_by_side(wanted: list[tuple[int, np.dtype]]) -> None:
    memory = TouchedMemory(sum(count * dtype.itemsize for count, dtype in wanted), len(wanted))
    whole = memory._left.base if memory._left.base is not None else memory._left
    arrays = [memory.allocate(count, dtype) for count, dtype in wanted]
    for number, (array, (count, dtype)) in enumerate(zip(arrays, wanted, strict=True), 1):
        assert (array.shape, array.dtype, array.any()) == ((count,), dtype, False)
        assert array.flags.aligned
        assert not count or np.shares_memory(array, whole)
        array[:] = number
    for number, array in enumerate(arrays, 1):
        assert (array == number).all(), "none lies in another"


def test_pages_are_touched_where_contents_do_not_matter() -> None:
    memory = TouchedMemory(20_000, 1, zeros=False)
    assert not memory._left[::4096].any()
    assert len(memory.allocate(2_500, np.dtype(np.float64))) == 2_500


def test_memory_that_was_used_before_is_zero_wherever_a_processor_did_its_part() -> None:
    used = np.full(9_000_001, 7, np.uint8)
    del used
    assert not TouchedMemory(9_000_001, 0).allocate(9_000_001, np.dtype(np.uint8)).any()


def test_what_has_no_room_gets_memory_of_its_own() -> None:
    memory = TouchedMemory(64, 1)
    array = memory.allocate(1000, np.dtype(np.float32))
    assert (len(array), array.any()) == (1000, False)
    assert not np.shares_memory(array, memory._left)


def test_arrays_come_in_the_order_in_which_they_were_wanted_and_others_are_made() -> None:
    ready = ReadyArrays([(3, np.dtype(np.float32)), (4, np.dtype(np.int64))])
    first = ready.allocate(3, np.dtype(np.float32))
    first[:] = 7
    assert (len(ready.allocate(3, np.dtype(np.float32))), len(ready._ready)) == (3, 1), (
        "another one is wanted"
    )
    second = ready.allocate(4, np.dtype(np.int64))
    assert (second.tolist(), second.dtype, len(ready._ready)) == ([0] * 4, np.dtype(np.int64), 0)
    assert ready.allocate(4, np.dtype(np.int64)).tolist() == [0] * 4
    assert first.tolist() == [7] * 3
