"""How far an experiment is, and how long it still takes: a bar on a terminal, else a line now and then."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress

LINE_SECONDS = 30.0


class TrialProgress:
    """``before`` of ``total`` trials were done when it began, so they say nothing about the speed."""

    def __init__(self, name: str, total: int, before: int, console: Console) -> None:
        self._name = name
        self._total = total
        self._before = before
        self._console = console
        self._started = time.monotonic()
        self._last_line = self._started
        columns = (
            TextColumn(name),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
        )
        self._bar = RichProgress(*columns, console=console, disable=not console.is_terminal)
        self._task = self._bar.add_task(name, total=total, completed=before, left="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def show(self, done: int, now: float) -> None:
        """``done`` of all trials are recorded; ``now`` is the monotonic clock, in seconds."""
        left = self.time_left(done, now)
        self._bar.update(self._task, completed=done, left=left)
        if not self._console.is_terminal and now - self._last_line >= LINE_SECONDS:
            self._last_line = now
            self._console.print(
                f"{self._name}: {done} of {self._total} trials, {left or 'no trial finished yet'}"
            )

    def time_left(self, done: int, now: float) -> str:
        """Time left, in words; empty while nothing is known."""
        finished = done - self._before
        if finished <= 0:
            return ""
        seconds = (now - self._started) / finished * (self._total - done)
        return f"{seconds / 60:.0f} min left" if seconds >= 120 else f"{seconds:.0f} s left"
