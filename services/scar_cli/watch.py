"""`scar watch`: a cluster live, until Ctrl-C or its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.text import Text

from scar.v1.recovery_pb2 import FailureRecord
from scar_admin.status import ClusterStatus, ProcessInfo, ask_from
from scar_cli.chart import draw_curve
from scar_cli.cluster_ref import ClusterRef
from scar_cli.clusters import find_cluster, read_status
from scar_cli.failures import cost_text, sources_text, state_text
from scar_cli.output import format_count, format_number, format_seconds, make_console
from scar_cli.status import headline, problem_lines, shard_table, worker_table
from scar_cli.up import stop_signal

CURVE_ROWS = 8
CURVE_MARGIN = 14  # columns beside the curve: the scale
FAILURES_SHOWN = 5

ShowStatus = Callable[[ClusterStatus, Sequence[ProcessInfo]], None]


def watch_cluster(ref: ClusterRef, interval: float) -> None:
    target = find_cluster(ref)
    screen = make_console()
    read_status(target)
    with stop_signal() as stop, target.observer() as observer, _open_display(screen) as show:
        losses = dict[int, float]()
        metrics = dict[int, Mapping[str, float]]()
        clock = -1
        while not stop.is_set() and not target.ended():
            status = observer.read(since_clock=ask_from(losses))
            moves = status.clock != clock
            clock = status.clock
            losses |= status.losses
            metrics |= status.metrics
            whole = replace(status, losses=dict(losses), metrics=dict(metrics))
            show(replace(whole, waits=() if moves else status.waits), target.processes())
            stop.wait(interval)
    if not stop.is_set():
        screen.print("the cluster has ended")


@contextmanager
def _open_display(screen: Console) -> Iterator[ShowStatus]:
    if not screen.is_terminal:
        yield ChangeLines(screen).show
        return
    last: list[RenderableType] = []

    def show(status: ClusterStatus, processes: Sequence[ProcessInfo]) -> None:
        last[:] = [draw_page(status, processes, screen.width)]
        live.update(last[0], refresh=True)

    with Live(console=screen, auto_refresh=False, screen=True) as live:
        yield show
    screen.print(*last)  # the screen of before is back, without what was seen last


def draw_page(status: ClusterStatus, processes: Sequence[ProcessInfo], width: int) -> RenderableType:
    """The whole screen."""
    known = {process.name: process for process in processes}
    parts: list[RenderableType] = [Text.from_markup(headline(status)), ""]
    parts += [*loss_curve(status, width), ""]
    parts += [shard_table(status, known), ""]
    if status.epoch and status.epoch.workers:
        parts += [worker_table(status, known), ""]
    parts += [Text.from_markup(failure_line(record)) for record in status.failures[-FAILURES_SHOWN:]]
    parts += [Text.from_markup(problem) for problem in problem_lines(status)]
    return Group(*parts)


def loss_curve(status: ClusterStatus, width: int) -> list[Text]:
    """The loss over clocks, with its highest and lowest value."""
    values = [status.losses[clock] for clock in sorted(status.losses)]
    if not values:
        return [Text("no loss yet: it comes with the first closed clock", style="dim")]
    lines = draw_curve(values, width - CURVE_MARGIN, CURVE_ROWS)
    scale = [format_number(max(values)), *[""] * (CURVE_ROWS - 2), format_number(min(values))]
    return [
        Text(f"{mark:>{CURVE_MARGIN - 2}} ", style="dim").append(row, style="cyan")
        for mark, row in zip(scale, lines, strict=True)
    ]


def failure_line(record: FailureRecord) -> str:
    """One failure in one line."""
    who = ", ".join(record.members)
    if not record.epoch:
        lost = format_count(record.lost_blocks, "block")
        return f"[bold red]failure {record.number}:[/] {who}: recovering {lost}"
    phases = (record.detect_seconds, record.wait_seconds, record.commit_seconds, record.load_seconds)
    took = sum(max(0.0, phase) for phase in phases)
    if not record.lost_blocks and not record.sources:
        return (
            f"[bold green]failure {record.number}:[/] {who}: no block lost, taken out at clock {record.clock}"
            f" in {format_seconds(took)} ({record.strategy}); {state_text(record)}"
        )
    return (
        f"[bold green]failure {record.number}:[/] {who}: {record.lost_blocks} of {record.total_blocks} blocks"
        f" back in {format_seconds(took)} ({sources_text(record)}){cost_text(record)}; {state_text(record)}"
    )


class ChangeLines:
    """For pipes and logs: a line at every change that a person would want to know."""

    def __init__(self, screen: Console) -> None:
        self._screen = screen
        self._known: dict[str, str] = {}

    def show(self, status: ClusterStatus, processes: Sequence[ProcessInfo]) -> None:
        if status.recovery is not None:
            self._say("cluster", headline(status))
        for process in processes:
            self._say(
                process.name,
                f"{process.name}: {process.state}, pid {process.pid}, restarts {process.restarts}",
            )
        for record in status.failures:
            self._say(f"failure {record.number}", failure_line(record))
        self._say("problem", "; ".join(f"problem: {escape(problem)}" for problem in status.problems))

    def _say(self, what: str, line: str) -> None:
        if line and self._known.get(what) != line:
            self._screen.print(line, soft_wrap=True)
        self._known[what] = line
