"""A curve drawn with block characters. Pure: numbers in, lines out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

BLOCKS = " ▁▂▃▄▅▆▇█"
STEPS = len(BLOCKS) - 1  # heights that one character can show


def draw(values: Sequence[float], width: int, height: int) -> list[str]:
    """``height`` lines of at most ``width`` characters, highest first. Values that are not finite leave a gap.

    More values than columns are averaged, so that a column stands for equally many neighbours.
    """
    columns = _columns(values, max(1, width))
    known = [value for value in columns if math.isfinite(value)]
    if not known:
        return [""] * height
    low, high = min(known), max(known)
    levels = [_level(value, low, high, height) for value in columns]
    return ["".join(BLOCKS[min(STEPS, max(0, level - row * STEPS))] for level in levels) for row in reversed(range(height))]


def _columns(values: Sequence[float], width: int) -> list[float]:
    if len(values) <= width:
        return list(values)
    cuts = [round(column * len(values) / width) for column in range(width + 1)]
    return [_mean(values[start:end]) for start, end in pairwise(cuts)]


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if math.isfinite(value)]
    return sum(known) / len(known) if known else math.nan


def _level(value: float, low: float, high: float, height: int) -> int:
    """Eighths of a character: the lowest value still shows as one."""
    if not math.isfinite(value):
        return 0
    share = (value - low) / (high - low) if high > low else 0.5
    return 1 + round(share * (height * STEPS - 1))
