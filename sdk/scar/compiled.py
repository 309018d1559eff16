"""What is written in C: compiled when SCAR is installed, if there is a compiler
(docs/adr/023-compiled-rules.md). Else numpy does the same, more slowly.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

from numpy.typing import NDArray


def load_library(path: Path, name: str, version: int) -> ctypes.CDLL | None:
    """None where it was not compiled, or is of another machine or version, which function ``name`` tells."""
    try:
        library = ctypes.CDLL(str(path))
        found = getattr(library, name)()
    except (OSError, AttributeError):
        return None
    return library if found == version else None


def address_of(array: NDArray[Any]) -> int:
    """Of its first element."""
    return int(array.__array_interface__["data"][0])


def pointer(array: NDArray[Any]) -> Any:
    """The same, as C takes it."""
    return ctypes.c_void_p(address_of(array))


def sizes(*numbers: int) -> list[Any]:
    """As C takes them."""
    return [ctypes.c_int64(number) for number in numbers]
