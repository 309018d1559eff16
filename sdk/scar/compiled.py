"""What is written in C: compiled when SCAR is installed, if there is a compiler
(docs/adr/023-compiled-rules.md). Else numpy does the same, more slowly.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

LEAST_BYTES = 2 << 20  # that one call writes on several processors: to start a thread takes up to 0.1 ms
MOST_THREADS = 4  # of a call: more get no more out of memory


def load_library(path: Path, name: str, version: int) -> ctypes.CDLL | None:
    """None where it was not compiled, or is of another machine or version, which function ``name`` tells."""
    try:
        library = ctypes.CDLL(str(path))
        found = getattr(library, name)()
    except (OSError, AttributeError):
        return None
    return library if found == version else None


def address(array: NDArray[Any]) -> Any:
    """Of its first element."""
    return ctypes.c_void_p(int(array.__array_interface__["data"][0]))


def sizes(*numbers: int) -> list[Any]:
    return [ctypes.c_int64(number) for number in numbers]


def count_parts(size: int) -> int:
    """On how many processors a call that writes so many bytes runs."""
    return 1 if size < LEAST_BYTES else count_threads()


@cache
def count_threads() -> int:
    """That work at once on what one call wants done."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(processors, MOST_THREADS)
