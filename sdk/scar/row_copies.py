"""Copies of many rows between flat arrays: large ones in C, on several processors, others in numpy.

``row_copies.c`` is compiled when SCAR is installed, if there is a compiler; else numpy does all of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scar.compiled import load_library, pointer, sizes
from scar.parallel import count_parts

VERSION = 1  # of the functions and their arguments: another library is not used
LIBRARY = Path(__file__).with_name("librow_copies.so")
FINITE_ELEMENTS = 1 << 18  # looked at at once by numpy: what is found of each stays in the cache

Flat = NDArray[Any]
Rows = NDArray[np.integer[Any]]

_library = load_library(LIBRARY, "scar_row_copies", VERSION)


def gather_rows(flat: Flat, width: int, at: Rows) -> Flat:
    """A packed copy of these rows, of ``width`` elements each."""
    if _parts(len(at) * width * flat.itemsize, flat) < 2:
        return np.take(flat.reshape(-1, width), at, axis=0).reshape(-1)
    packed = np.empty(len(at) * width, flat.dtype)
    gather_rows_into(flat, width, at, packed)
    return packed


def gather_rows_into(flat: Flat, width: int, at: Rows, packed: Flat, partly: bool = False) -> None:
    """The same, written to ``packed``. ``partly``: where a row is -1, that place stays as it is."""
    parts = _parts(packed.nbytes, flat, packed)
    if parts < 2 and partly:
        there = np.flatnonzero(at >= 0)
        as_items(packed, width)[there] = as_items(flat, width)[at[there]]
        return
    if parts < 2:
        rows = packed.reshape(-1, width)
        np.take(flat.reshape(-1, width), at, axis=0, out=rows, mode="clip")  # "raise" would buffer
        return
    _copy_rows("scar_gather", packed, flat, width, at, -int(partly), len(flat) // width, parts)


def scatter_rows(flat: Flat, width: int, at: Rows, packed: Flat) -> None:
    """Write packed rows to their places, each to another one."""
    parts = _parts(packed.nbytes, flat, packed)
    if parts < 2:
        as_items(flat, width)[at] = as_items(packed, width)
        return
    _copy_rows("scar_scatter", flat, packed, width, at, len(flat) // width, parts)


def copy_elements(target: Flat, source: Flat) -> None:
    """Of arrays of one length and dtype."""
    parts = _parts(target.nbytes, target, source)
    if parts < 2 or len(source) != len(target):
        target[...] = source
        return
    assert _library is not None
    _library.scar_copy(pointer(target), pointer(source), *sizes(target.nbytes, parts))


def all_finite(values: Flat) -> bool:
    """No NaN and no infinity, in a flat array of floats."""
    parts = _parts(values.nbytes, values)
    if parts > 1 and values.dtype.name in ("float32", "float64"):
        look = getattr(_library, f"scar_all_finite_{values.dtype.name}")
        return bool(look(pointer(values), *sizes(len(values), parts)))
    starts = range(0, len(values), FINITE_ELEMENTS)
    return all(bool(np.isfinite(values[at : at + FINITE_ELEMENTS]).all()) for at in starts)


def as_items(flat: Flat, width: int) -> NDArray[np.void]:
    """Rows as single items: many narrow ones are written several times faster than as rows of a matrix."""
    return np.ascontiguousarray(flat).view(np.dtype((np.void, width * flat.itemsize))).reshape(-1)


def _copy_rows(name: str, target: Flat, source: Flat, width: int, at: Rows, *numbers: int) -> None:
    """By this function of C. ``numbers``: the last two are how many rows there are, and parts."""
    places = np.ascontiguousarray(at, np.int64)
    counts = sizes(len(at), width * source.itemsize, *numbers)
    if getattr(_library, name)(pointer(target), pointer(source), pointer(places), *counts):
        raise IndexError(f"a row is not one of {numbers[-2]}")


def _parts(size: int, *arrays: Flat) -> int:
    """In how many parts C does it; 1: numpy does it."""
    parts = count_parts(size)
    if parts < 2 or _library is None:
        return 1
    alike = all(array.flags.c_contiguous and array.dtype == arrays[0].dtype for array in arrays)
    return parts if alike else 1
