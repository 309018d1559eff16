"""float32 values in two bytes: the upper half of each, as bfloat16 has it. Pure."""

from __future__ import annotations

from typing import Any

import numpy as np

from scar.blocks import Array

NAME = "bfloat16"
DTYPE: np.dtype[Any] = np.dtype("<u2")  # numpy has none for it
_HALF_BITS = 16


def round_to_bfloat16(values: Array) -> Array:
    """The nearest values that bfloat16 has, of finite float32, as float32; a tie goes to the even one.

    Of |x| at most 2^-8 |x| is lost, or 2^-134 where x is tiny. What is larger than bfloat16's largest value
    becomes infinity.
    """
    bits = values.view(np.uint32)
    return ((bits + (0x7FFF + ((bits >> _HALF_BITS) & 1))) & np.uint32(0xFFFF0000)).view(np.float32)


def nearest_short(values: Array) -> Array:
    """Any float32 values in :data:`DTYPE`, rounded. NaN and infinity stay what they are, and finite values
    finite: beyond bfloat16's largest one they are cut off.
    """
    rounded = round_to_bfloat16(values)
    special = ~np.isfinite(rounded)
    if special.any():
        odd = values[special]
        quiet = np.where(
            np.isnan(odd), np.uint32(0x00400000), np.uint32(0)
        )  # else its payload may be cut off
        rounded[special] = ((odd.view(np.uint32) | quiet) & np.uint32(0xFFFF0000)).view(np.float32)
    return shorten_values(rounded)


def shorten_values(values: Array) -> Array:
    """Rounded float32 values in :data:`DTYPE`. What rounding would have lost is cut off."""
    return (values.view(np.uint32) >> _HALF_BITS).astype(DTYPE)


def lengthen_values(short: Array) -> Array:
    """The float32 values that were shortened."""
    return (short.astype(np.uint32) << _HALF_BITS).view(np.float32)
