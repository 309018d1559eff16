"""Memory that is freed stays with the process.

By default glibc gives large blocks back to the kernel at every free, and each message of a tensor stream then
pays for new pages: measured, that is half of the system time of a 64 MiB push. So nothing is mapped on its
own, and all threads share one heap: what one thread of a stream frees is what the next one needs.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scar.parallel import count_parts, map_parts

_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4
_M_ARENA_MAX = -8
KEEP_BYTES = 512 << 20  # freed memory at the top of the heap that is kept, at most
_MAP_NORESERVE = 0x4000  # of Linux; Python has a name for it from 3.13 on
LEAST_RESERVED = 1 << 20  # bytes, for which pages of their own are worth it
LEAST_HUGE = 64 << 20  # bytes: of fewer a page of 2 MiB would mostly be room that is not used
_ALIGNMENT = 64  # bytes
_PAGE = 4096  # bytes, the least that any system has


def keep_freed() -> None:
    """Tune the C allocator of this process; without effect where it is not glibc."""
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_ARENA_MAX, 1)
        mallopt(_M_TRIM_THRESHOLD, KEEP_BYTES)


class TouchedMemory:
    """Room for ``arrays`` arrays of ``size`` bytes together, of any contents, whose pages the kernel has
    given already: who writes to them does not wait for that. On a virtual machine a page costs more than what
    is written to it.
    """

    def __init__(self, size: int, arrays: int) -> None:
        whole: NDArray[np.uint8] = np.empty(size + arrays * _ALIGNMENT, np.uint8)
        self._left = whole
        touch_pages([whole])

    def allocate(self, count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """As :func:`numpy.empty`. What there is no room for is not touched yet."""
        size = count * dtype.itemsize
        if size > len(self._left):
            return np.empty(count, dtype)
        array = self._left[:size].view(dtype)
        self._left = self._left[-(-size // _ALIGNMENT) * _ALIGNMENT :]
        return array


def reserve_zeros(count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """An array of zeros for more than may ever be needed: memory is taken as it is written to. None of it is
    kept when it is freed. Raises :class:`MemoryError` where the system does not reserve so much.
    """
    size = count * dtype.itemsize
    if size < LEAST_RESERVED or not sys.platform.startswith("linux"):
        return np.zeros(count, dtype)
    try:
        pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE)
    except (OSError, ValueError, OverflowError) as error:
        raise MemoryError(f"{size} bytes cannot be reserved: {error}") from error
    if size >= LEAST_HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # of a kernel without them
            pages.madvise(mmap.MADV_HUGEPAGE)
    return np.ndarray((count,), dtype, buffer=pages)


def touch_pages(arrays: Iterable[NDArray[Any]]) -> None:
    """Have the kernel give the memory of these arrays, which are zero or of no account."""
    for array in arrays:
        whole = array.view(np.uint8)

        def touch(part: NDArray[np.uint8]) -> None:
            part[::_PAGE] = 0  # without Python's lock

        map_parts(touch, np.array_split(whole, count_parts(len(whole))))
