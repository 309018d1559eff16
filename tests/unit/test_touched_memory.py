"""Memory that the kernel has given already, and memory that it gives as it is written to."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scar_runtime.process.memory import TouchedMemory, reserve_zeros, touch_pages

DTYPES = st.sampled_from([np.dtype(name) for name in ("float32", "float64", "int64", "uint8")])


@given(st.lists(st.tuples(st.integers(0, 50), DTYPES), max_size=6))
def test_as_many_arrays_as_were_announced_lie_in_it_side_by_side(wanted: list[tuple[int, np.dtype]]) -> None:
    memory = TouchedMemory(sum(count * dtype.itemsize for count, dtype in wanted), len(wanted))
    whole = memory._left.base if memory._left.base is not None else memory._left
    arrays = [memory.allocate(count, dtype) for count, dtype in wanted]
    for number, (array, (count, dtype)) in enumerate(zip(arrays, wanted, strict=True), 1):
        assert (array.shape, array.dtype) == ((count,), dtype)
        assert array.flags.aligned
        assert not count or np.shares_memory(array, whole)
        array[:] = number
    for number, array in enumerate(arrays, 1):
        assert (array == number).all(), "none lies in another"


def test_all_pages_are_touched() -> None:
    memory = TouchedMemory(20_000, 1)
    assert not memory._left[::4096].any()
    assert len(memory.allocate(2_500, np.dtype(np.float64))) == 2_500


def test_what_has_no_room_gets_memory_of_its_own() -> None:
    memory = TouchedMemory(64, 1)
    array = memory.allocate(1000, np.dtype(np.float32))
    assert len(array) == 1000
    assert not np.shares_memory(array, memory._left)


@pytest.mark.parametrize("count", [0, 3, 1 << 20])
def test_memory_that_is_reserved_is_zero_and_can_be_written_to(count: int) -> None:
    array = reserve_zeros(count, np.dtype(np.float32))
    touch_pages([array[1:]])
    assert (array.shape, array.dtype, array.any()) == ((count,), np.dtype(np.float32), False)
    array[:] = 7
    assert (array == 7).all()


def test_reserving_takes_no_memory_and_touching_does() -> None:
    """More than any machine has may be reserved: what counts is what is written to."""
    before = resident_bytes()
    array = reserve_zeros(1 << 36, np.dtype(np.float32))
    assert resident_bytes() - before < 50e6
    assert isinstance(array.base, mmap.mmap), "not of the heap, which a shard has zeroed at once"
    touch_pages([array[5 : 5 + (25 << 20)]])
    assert 90e6 < resident_bytes() - before < 200e6


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_what_cannot_be_reserved_is_said_to_be_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mmap, "mmap", refuse)
    with pytest.raises(MemoryError, match="4194304 bytes cannot be reserved: no"):
        reserve_zeros(1 << 20, np.dtype(np.float32))


def refuse(*_: object, **__: object) -> None:
    raise OSError("no")
