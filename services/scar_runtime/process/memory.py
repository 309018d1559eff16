"""Memory that is freed stays with the process.

By default glibc gives large blocks back to the kernel at every free, and each message of a tensor stream then
pays for new pages: measured, that is half of the system time of a 64 MiB push. So nothing is mapped on its
own, and all threads share one heap: what one thread of a stream frees is what the next one needs.
"""

from __future__ import annotations

import ctypes
import sys

_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4
_M_ARENA_MAX = -8
KEEP_BYTES = 512 << 20  # freed memory at the top of the heap that is kept, at most


def keep_freed() -> None:
    """Tune the C allocator of this process; without effect where it is not glibc."""
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_ARENA_MAX, 1)
        mallopt(_M_TRIM_THRESHOLD, KEEP_BYTES)
