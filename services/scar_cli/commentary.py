"""What `scar train` prints beside its line: output of workers, waits, a loss that is not a number."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.text import Text

from scar_admin.observer import ClusterObserver
from scar_admin.status import ClusterStatus, ProcessInfo
from scar_cli.wait_reports import WaitReporter
from scar_local.worker_output import WorkerLine, WorkerOutput

COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "bright_cyan", "bright_magenta", "bright_green")


class Commentary:
    """``output``: where workers print; None: that is not shown."""

    def __init__(self, screen: Console, observer: ClusterObserver, output: WorkerOutput | None) -> None:
        self._screen = screen
        self._output = output
        self._show = line_printer(screen)
        self._waits = WaitReporter(screen, observer)
        self._void = False  # it was said that the loss is no number

    def look(self, status: ClusterStatus, workers: Sequence[ProcessInfo]) -> tuple[str, ...]:
        """Tell what is new. Returns what is waited for, in words."""
        ends = [process.code for process in workers if process.final]
        over = bool(workers) and (len(ends) == len(workers) or any(ends))
        if self._output is not None:
            self._show(self._output.lines([process.name for process in workers], over))
        if not self._void and (warning := void_loss(status)):
            self._void = True
            self._screen.print(warning, soft_wrap=True)
        return () if over else self._waits.look(status)


def line_printer(screen: Console) -> Callable[[list[WorkerLine]], None]:
    """Prints lines, each worker's name in a colour of its own."""

    def show(said: list[WorkerLine]) -> None:
        for name, line in said:
            number = int(name.rpartition("-")[2]) if name.rpartition("-")[2].isdecimal() else 0
            prefix = Text(f"{name} | ", style=COLOURS[number % len(COLOURS)])
            screen.print(prefix + Text.from_ansi(line), soft_wrap=True)

    return show


def void_loss(status: ClusterStatus) -> str:
    """What to say of a loss that is no finite number, with markup; empty: there is none."""
    since = min((clock for clock, loss in status.losses.items() if not math.isfinite(loss)), default=-1)
    if since < 0 or (status.loss is not None and math.isfinite(status.loss)):
        return ""
    return (
        f"[bold yellow]the loss is {status.loss:g} since clock {since}:[/] the training has diverged, or"
        " divides by zero; try a smaller learning rate"
    )
