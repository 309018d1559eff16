"""Why a worker failed, by its log: the part of its traceback that its user wrote. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import scar

_ROOT = re.escape(str(Path(scar.__file__).parent))
_INTERNAL = re.compile(rf'  File "(?:{_ROOT}|.*/site-packages/scar(?:_\w+)?)/')
SILENT = "it left no traceback (os._exit, or a crash in native code); what it printed last:"
LAST_LINES = 12  # of the log of a worker that failed


def failure_reason(lines: Sequence[str], file: str) -> str:
    """The user's part of the traceback that the log ``lines`` have, else the end of the log."""
    for line in reversed(lines):
        with suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError):  # a user printed it
            return "\n".join(user_part(json.loads(line)["traceback"].splitlines(), file))
    printed = [line for line in lines if not line.startswith('{"time": ')][-LAST_LINES:]
    why = [] if any(line.startswith("error: ") for line in printed) else [SILENT]
    return "\n".join([*why, *printed])


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
