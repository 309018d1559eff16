"""`scar watch`: a cluster live, until Ctrl-C or its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.text import Text

from scar.v1.recovery_pb2 import FailureRecord
from scar_cli.chart import draw
from scar_cli.clusters import find, look
from scar_cli.failures import delta, sources, state
from scar_cli.output import console, number, seconds
from scar_cli.places import Place
from scar_cli.status import headline, problems, shard_table, worker_table
from scar_cli.up import stop_signal
from scar_runtime.status import ClusterStatus, ProcessInfo

CURVE_ROWS = 8
CURVE_MARGIN = 14  # columns beside the curve: the scale
FAILURES_SHOWN = 5
REDO = 64  # clocks asked for again at each look, since a full recovery repeats some

Show = Callable[[ClusterStatus, Sequence[ProcessInfo]], None]


def run(place: Place, interval: float) -> None:
    target, screen = find(place), console()
    look(target)
    with stop_signal() as stop, target.observer() as observer, _display(screen) as show:
        losses, clock = dict[int, float](), -1
        while not stop.is_set() and not target.ended():
            status = observer.read(since_clock=max(0, max(losses, default=0) - REDO))
            moves, clock = status.clock != clock, status.clock
            losses |= status.losses
            show(replace(status, losses=dict(losses), waits=() if moves else status.waits), target.processes())
            stop.wait(interval)
    if not stop.is_set():
        screen.print("the cluster has ended")


@contextmanager
def _display(screen: Console) -> Iterator[Show]:
    if not screen.is_terminal:
        yield Lines(screen).show
        return
    with Live(console=screen, auto_refresh=False, screen=True) as live:
        yield lambda status, processes: live.update(page(status, processes, screen.width), refresh=True)


def page(status: ClusterStatus, processes: Sequence[ProcessInfo], width: int) -> RenderableType:
    """The whole screen."""
    known = {process.name: process for process in processes}
    parts: list[RenderableType] = [Text.from_markup(headline(status)), ""]
    parts += [*curve(status, width), ""]
    parts += [shard_table(status, known), ""]
    if status.epoch and status.epoch.workers:
        parts += [worker_table(status, known), ""]
    parts += [Text.from_markup(event(record)) for record in status.failures[-FAILURES_SHOWN:]]
    parts += [Text.from_markup(problem) for problem in problems(status)]
    return Group(*parts)


def curve(status: ClusterStatus, width: int) -> list[Text]:
    """The loss over clocks, with its highest and lowest value."""
    values = [status.losses[clock] for clock in sorted(status.losses)]
    if not values:
        return [Text("no loss yet: it comes with the first closed clock", style="dim")]
    lines = draw(values, width - CURVE_MARGIN, CURVE_ROWS)
    scale = [number(max(values)), *[""] * (CURVE_ROWS - 2), number(min(values))]
    return [
        Text(f"{mark:>{CURVE_MARGIN - 2}} ", style="dim").append(row, style="cyan")
        for mark, row in zip(scale, lines, strict=True)
    ]


def event(record: FailureRecord) -> str:
    """One failure in one line."""
    who = ", ".join(record.members)
    if not record.epoch:
        return f"[bold red]failure {record.number}:[/] {who}: recovering {record.lost_blocks} blocks"
    took = record.detect_seconds + record.wait_seconds + record.commit_seconds + max(0.0, record.load_seconds)
    return (
        f"[bold green]failure {record.number}:[/] {who}: {record.lost_blocks} of {record.total_blocks} blocks back in "
        f"{seconds(took)} ({sources(record)}), ||delta|| {delta(record)}, {record.lost_pushes} pushes lost; {state(record)}"
    )


class Lines:
    """For pipes and logs: a line at every change that a person would want to know."""

    def __init__(self, screen: Console) -> None:
        self._screen = screen
        self._known: dict[str, str] = {}

    def show(self, status: ClusterStatus, processes: Sequence[ProcessInfo]) -> None:
        if status.recovery is not None:
            self._say("cluster", headline(status))
        for process in processes:
            self._say(process.name, f"{process.name}: {process.state}, pid {process.pid}, restarts {process.restarts}")
        for record in status.failures:
            self._say(f"failure {record.number}", event(record))
        self._say("problem", "; ".join(f"problem: {escape(problem)}" for problem in status.problems))

    def _say(self, what: str, line: str) -> None:
        if line and self._known.get(what) != line:
            self._screen.print(line, soft_wrap=True)
        self._known[what] = line
