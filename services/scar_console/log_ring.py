"""The last lines of members' logs, few of each: one that writes without end hides nobody."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from scar_admin.log_text import LogText

MAX_LINES = 600  # of all members
MAX_TEXT = 240  # bytes of a line
MAX_NAME = 63
MAX_RINGS = 200  # those that were written to last
PRINTED = "printed"  # what is no record: what a user prints, what Redis says
LEVELS = {"debug": "debug", "info": "info", "warning": "warning", "error": "error", "critical": "error"}
SEVERE = ("warning", "error")
HEAD = frozenset({"time", "level", "logger", "event", "role", "member", "incarnation", "epoch"})


@dataclass(frozen=True)
class LogLine:
    """``number``: in the order in which they came. ``time``: in seconds since 1970; 0: nobody knows."""

    member: str
    level: str
    text: str
    time: float = 0.0
    number: int = 0


def read_line(raw: LogText) -> LogLine:
    """A record of a service (docs/operations.md), or whatever else was written."""
    record = _record_of(raw.text)
    if record is None:
        return LogLine(raw.member, PRINTED, _short_text(raw.text), raw.written)
    data = " ".join(
        f"{key}={value}" for key, value in record.items() if key not in HEAD and value not in ("", [], None)
    )
    level = LEVELS.get(str(record["level"]), PRINTED)
    text = f"{record['event']} {data}".rstrip()
    return LogLine(raw.member, level, _short_text(text), _seconds(record.get("time")) or raw.written)


def _short_text(text: str) -> str:
    """What can be printed of it."""
    shown = "".join(sign if sign.isprintable() else " " for sign in text[:MAX_TEXT])
    return shown.encode()[:MAX_TEXT].decode(errors="ignore")


def _record_of(text: str) -> dict[str, Any] | None:
    if not text.startswith("{"):
        return None
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and {"event", "level"} <= record.keys() else None


def _seconds(time: object) -> float:
    try:
        return datetime.fromisoformat(str(time)).timestamp()
    except (ValueError, OverflowError, OSError):
        return 0.0


class LogRing:
    """A ring for each member, and one for what is severe of it. Any thread may call it."""

    def __init__(self) -> None:
        self._rings: dict[tuple[str, bool], deque[LogLine]] = {}
        self._number = 0
        self._turn = threading.Lock()

    def add(self, lines: Iterable[LogLine]) -> None:
        """In the order of their times; those without one follow the line of their member before them."""
        with self._turn:
            for line in sorted(_with_times(lines), key=lambda one: one.time):
                self._number += 1
                key = (line.member[:MAX_NAME], line.level in SEVERE)
                ring = self._rings.pop(key, None) or deque()
                ring.append(replace(line, member=key[0], number=self._number))
                self._rings[key] = ring  # the last one of all
            while len(self._rings) > MAX_RINGS:
                self._rings.pop(next(iter(self._rings)))
            room = MAX_LINES // max(1, len(self._rings))
            for ring in self._rings.values():
                while len(ring) > room:
                    ring.popleft()

    def newest(self) -> list[LogLine]:
        """All that is kept, by number."""
        with self._turn:
            return sorted(
                (line for ring in self._rings.values() for line in ring), key=lambda one: one.number
            )


def _with_times(lines: Iterable[LogLine]) -> list[LogLine]:
    known = dict[str, float]()
    found = []
    for line in lines:
        at = line.time or known.get(line.member, 0.0)
        known[line.member] = at
        found.append(replace(line, time=at))
    return found
