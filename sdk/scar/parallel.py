"""Large work in parts, on several processors: calls of C (``parallel.h``), and of what does not need Python's
lock.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import TypeVar

LEAST_BYTES = 2 << 20  # that are worth a second thread: to start one takes up to 0.1 ms
MOST_THREADS = 4  # of one call: more get no more out of memory
CPU_LIMIT = Path("/sys/fs/cgroup/cpu.max")  # of a container: microseconds of processors in each so many

Part = TypeVar("Part")
PartResult = TypeVar("PartResult")


@cache
def count_threads() -> int:
    """That work at once on what one call wants done: no more than there are processors for this process, as
    more would use up a container's share of them before its time.
    """
    return min(count_processors(), _cpu_limit(), MOST_THREADS)


def count_processors() -> int:
    """That this process may use, as ``taskset`` has it."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cpu_limit() -> int:
    try:
        share, period = map(int, CPU_LIMIT.read_text().split())
    except (OSError, ValueError):  # "max": there is none
        return MOST_THREADS
    return max(1, -(-share // period)) if period > 0 else MOST_THREADS


def count_parts(size: int) -> int:
    """In how many parts a call that writes so many bytes works."""
    return 1 if size < LEAST_BYTES else count_threads()


def each_part(work: Callable[[Part], PartResult], parts: Iterable[Part]) -> Iterator[PartResult]:
    """``work`` on each part, in their order, as they are asked for or before; a single one on this thread."""
    parts = list(parts)
    threads = min(len(parts), count_threads())
    if threads < 2:
        yield from map(work, parts)
        return
    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(work, parts)


def map_parts(work: Callable[[Part], PartResult], parts: Iterable[Part]) -> list[PartResult]:
    """All of :func:`each_part`."""
    return list(each_part(work, parts))
