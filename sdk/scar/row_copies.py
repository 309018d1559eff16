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

VERSION = 2  # of the functions and their arguments: another library is not used
LIBRARY = Path(__file__).with_name("librow_copies.so")
_KINDS = {"f": 4, "d": 8}  # of floats by dtype.char, whose name takes longer to find
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


def gather_rows_into(
    flat: Flat, width: int, at: Rows, packed: Flat, partly: bool = False, look: bool = False
) -> bool:
    """The same, written to ``packed``. ``partly``: where a row is -1, that place stays as it is. False: it
    was wanted that they are all finite (``look``), and one is not.
    """
    kind = _kind(packed) if look else 0
    parts = _parts(packed.nbytes, flat, packed)
    if parts < 2 and partly:
        there = np.flatnonzero(at >= 0)
        as_items(packed, width)[there] = as_items(flat, width)[at[there]]
        return True
    if parts < 2 or (look and not kind):
        rows = packed.reshape(-1, width)
        np.take(flat.reshape(-1, width), at, axis=0, out=rows, mode="clip")  # "raise" would buffer
        return not look or all_finite(packed)
    return _copy_rows("scar_gather", packed, flat, width, at, kind, -int(partly), len(flat) // width, parts)


def scatter_rows(flat: Flat, width: int, at: Rows, packed: Flat) -> None:
    """Write packed rows to their places, each to another one."""
    parts = _parts(packed.nbytes, flat, packed)
    if parts < 2:
        as_items(flat, width)[at] = as_items(packed, width)
        return
    _copy_rows("scar_scatter", flat, packed, width, at, len(flat) // width, parts)


def copy_elements(target: Flat, source: Flat, look: bool = False) -> bool:
    """Of arrays of one length and dtype. ``look``, and False: as of :func:`gather_rows_into`."""
    kind = _kind(target) if look else 0
    parts = _parts(target.nbytes, target, source)
    if parts < 2 or len(source) != len(target) or (look and not kind):
        target[...] = source
        return not look or all_finite(target)
    assert _library is not None
    counts = sizes(len(target), target.itemsize, kind, parts)
    return not _library.scar_copy(pointer(target), pointer(source), *counts)


def all_finite(values: Flat) -> bool:
    """No NaN and no infinity, in a flat array of floats."""
    kind = _kind(values)
    if kind and _suits_c(values):
        assert _library is not None
        counts = sizes(len(values), kind, kind, count_parts(values.nbytes))
        return not _library.scar_copy(None, pointer(values), *counts)
    starts = range(0, len(values), FINITE_ELEMENTS)
    return all(bool(np.isfinite(values[at : at + FINITE_ELEMENTS]).all()) for at in starts)


def as_items(flat: Flat, width: int) -> NDArray[np.void]:
    """Rows as single items: many narrow ones are written several times faster than as rows of a matrix."""
    return np.ascontiguousarray(flat).view(np.dtype((np.void, width * flat.itemsize))).reshape(-1)


def _copy_rows(name: str, target: Flat, source: Flat, width: int, at: Rows, *numbers: int) -> bool:
    """By this function of C. ``numbers``: the last two are how many rows there are, and parts."""
    places = np.ascontiguousarray(at, np.int64)
    counts = sizes(len(at), width * source.itemsize, *numbers)
    found = getattr(_library, name)(pointer(target), pointer(source), pointer(places), *counts)
    if found < 0:
        raise IndexError(f"a row is not one of {numbers[-2]}")
    return not found


def _kind(values: Flat) -> int:
    """How C looks for what is not finite; 0: it cannot."""
    return _KINDS.get(values.dtype.char, 0)


def _parts(size: int, *arrays: Flat) -> int:
    """In how many parts C does it; 1: numpy does it."""
    parts = count_parts(size)
    return parts if parts > 1 and _suits_c(*arrays) else 1


def _suits_c(*arrays: Flat) -> bool:
    """Whether C is there and may read and write these: of one dtype, without gaps, aligned."""
    usable = all(array.flags.c_contiguous and array.flags.aligned for array in arrays)
    return _library is not None and usable and all(array.dtype == arrays[0].dtype for array in arrays)
