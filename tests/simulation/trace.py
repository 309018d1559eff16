"""The trace of a run: every step and every event, as a digest always, as text when it is wanted."""

from __future__ import annotations

import hashlib
from array import array
from typing import TextIO

STEPS = 4096  # that are kept in memory


class RunTrace:
    """``text``: gets a line for each step and event. The digest is the same with and without."""

    def __init__(self, text: TextIO | None = None) -> None:
        self._text = text
        self._hash = hashlib.sha256()
        self._lines: list[str] = []
        self._events: list[str] = []
        self._times = array("d")
        self._tasks = array("q")

    def step(self, now: float, number: int, label: str) -> None:
        """A task goes on."""
        self._times.append(now)
        self._tasks.append(number)
        if self._text is not None:
            self._lines.append(f"{now:.6f} run {label}\n")
        if len(self._tasks) >= STEPS:
            self._flush()

    def event(self, now: float, what: str) -> None:
        self._events.append(f"{len(self._tasks)} {now!r} {what}\n")
        if self._text is not None:
            self._lines.append(f"{now:.6f} {what}\n")

    def _flush(self) -> None:
        """Steps and events are told apart by the numbers with which events begin."""
        self._hash.update(self._times)
        self._hash.update(self._tasks)
        self._hash.update("".join(self._events).encode())
        self._times, self._tasks = array("d"), array("q")
        self._events.clear()
        if self._text is not None:
            self._text.write("".join(self._lines))
            self._lines.clear()

    @property
    def digest(self) -> str:
        """Of the trace up to now: equal for equal runs, and for no others. For the end of a run."""
        self._flush()
        return self._hash.hexdigest()
