"""What `scar train` shows while a training runs: one moving line on a terminal, else a line now and then."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from scar_admin.status import ClusterStatus
from scar_cli.chart import draw_curve
from scar_cli.job_end import StatusDisplay
from scar_cli.output import format_count
from scar_cli.status import loss_text

PLAIN_SECONDS = 2.0  # between two lines when the output is no terminal
CURVE_WIDTH = 24


@contextmanager
def open_display(screen: Console) -> Iterator[StatusDisplay]:
    """One moving line on a terminal, a line every now and then elsewhere."""
    if not screen.is_terminal:
        yield StatusLines(screen).show
        return
    columns = (SpinnerColumn(), TextColumn("{task.fields[text]}"), TimeElapsedColumn())
    with Progress(*columns, console=screen, transient=True) as progress:
        task = progress.add_task("", total=None, text="starting")
        yield lambda status, problems: progress.update(task, text=status_line(status, problems))


class StatusLines:
    def __init__(self, screen: Console) -> None:
        self._screen = screen
        self._next = 0.0
        self._failures = 0

    def show(self, status: ClusterStatus, problems: tuple[str, ...]) -> None:
        now = time.monotonic()
        if (status.number or problems) and (now >= self._next or len(status.failures) != self._failures):
            self._next = now + PLAIN_SECONDS
            self._failures = len(status.failures)
            self._screen.print(status_line(status, problems, curve=False), soft_wrap=True)


def status_line(status: ClusterStatus, problems: tuple[str, ...] = (), curve: bool = True) -> str:
    """What a training looks like in one line."""
    parts = [f"clock {status.clock}", loss_text(status)]
    if curve and status.losses:
        parts[1] += (
            " " + draw_curve([status.losses[clock] for clock in sorted(status.losses)], CURVE_WIDTH, 1)[0]
        )
    if status.checkpoint and status.checkpoint.manifest:
        parts.append(f"checkpoint {status.checkpoint.manifest}")
    if status.failures:
        parts.append(format_count(len(status.failures), "failure"))
    if status.loading:
        parts.append(
            f"{'recovering' if _is_recovering(status) else 'loading'} {format_count(status.loading, 'block')}"
        )
    return " · ".join(parts) + (f" · waiting: {problems[0]}" if problems else "")


def _is_recovering(status: ClusterStatus) -> bool:
    """Blocks that are not served yet were lost; else they are loaded for the first time, or moved."""
    return bool(status.recovery and status.recovery.recovering)
