"""The part of a worker's traceback that its user wrote. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import scar

_ROOT = re.escape(str(Path(scar.__file__).parent))
_INTERNAL = re.compile(rf'  File "(?:{_ROOT}|.*/site-packages/scar(?:_\w+)?)/')


def user_part(trace: Sequence[str], file: str) -> list[str]:
    """The user's frames of a traceback, from the first that names ``file`` on, and the error.

    Without frames of a call of SCAR and what it called.
    """
    first = next((number for number, entry in enumerate(trace) if file in entry), 0)
    kept = list[str]()
    inside = False
    for line in trace[first:]:
        if not line.startswith("  "):
            inside = False
        elif _INTERNAL.match(line):
            inside = True
        if not inside:
            kept.append(line)
    return kept
