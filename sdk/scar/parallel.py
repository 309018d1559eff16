"""Large work in parts, on several processors: calls of C (``parallel.h``), and of what does not need Python's
lock.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

LEAST_BYTES = 2 << 20  # that are worth a second thread: to start one takes up to 0.1 ms
MOST_THREADS = 4  # of one call: more get no more out of memory

Part = TypeVar("Part")
PartResult = TypeVar("PartResult")


@cache
def count_threads() -> int:
    """That work at once on what one call wants done."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(processors, MOST_THREADS)


def count_parts(size: int) -> int:
    """In how many parts a call that writes so many bytes works."""
    return 1 if size < LEAST_BYTES else count_threads()


def map_parts(work: Callable[[Part], PartResult], parts: Iterable[Part]) -> list[PartResult]:
    """``work`` on each part, in their order; a single one on this thread."""
    parts = list(parts)
    threads = min(len(parts), count_threads())
    if threads < 2:
        return list(map(work, parts))
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, parts))
