"""A curve drawn with block characters. Pure: numbers in, lines out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

BLOCKS = " ▁▂▃▄▅▆▇█"
STEPS = len(BLOCKS) - 1  # heights that one character can show


def draw_curve(values: Sequence[float], width: int, height: int) -> list[str]:
    """Draw a curve in ``height`` lines of at most ``width`` characters, highest first.

    Values that are not finite leave a gap.

    More values than columns are averaged, so that a column stands for equally many neighbours.
    """
    columns = _average_columns(values, max(1, width))
    known = [value for value in columns if math.isfinite(value)]
    if not known:
        return [""] * height
    low = min(known)
    high = max(known)
    levels = [_column_level(value, low, high, height) for value in columns]
    return [
        "".join(BLOCKS[min(STEPS, max(0, level - row * STEPS))] for level in levels)
        for row in reversed(range(height))
    ]


def _average_columns(values: Sequence[float], width: int) -> list[float]:
    if len(values) <= width:
        return list(values)
    cuts = [round(column * len(values) / width) for column in range(width + 1)]
    return [_finite_mean(values[start:end]) for start, end in pairwise(cuts)]


def _finite_mean(values: Sequence[float]) -> float:
    known = [value for value in values if math.isfinite(value)]
    return sum(known) / len(known) if known else math.nan


def _column_level(value: float, low: float, high: float, height: int) -> int:
    """Eighths of a character: the lowest value still shows as one."""
    if not math.isfinite(value):
        return 0
    share = (value - low) / (high - low) if high > low else 0.5
    return 1 + round(share * (height * STEPS - 1))
