"""`scar status`: one look at all services."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from scar.v1 import detector_pb2
from scar_cli import output
from scar_cli.clusters import find, look
from scar_cli.output import Output, number, seconds
from scar_cli.places import Place
from scar_runtime.status import DONE, ClusterStatus, ProcessInfo

Processes = Mapping[str, ProcessInfo]
HEALTH_COLOURS = {"alive": "green", "learning": "cyan", "suspect": "yellow", "dead": "red"}


def run(place: Place, form: Output) -> None:
    target = find(place)
    status = look(target)
    processes = {process.name: process for process in target.processes()}

    def text(screen: Console) -> None:
        screen.print(headline(status))
        screen.print()
        screen.print(shard_table(status, processes))
        if status.epoch and status.epoch.workers:
            screen.print()
            screen.print(worker_table(status, processes))
        screen.print()
        screen.print(coordinator_table(status, processes))
        for problem in problems(status):
            screen.print(problem, soft_wrap=True)

    output.show(form, as_data(status, processes), text)


def headline(status: ClusterStatus) -> str:
    """Job, clock, loss, epoch and checkpoint in one line."""
    if status.job is None:
        return "[bold]no job yet[/]; start one by `scar train FILE`"
    parts = [
        f"[bold]job {status.job.name}[/] ({status.job.consistency}, {status.job.recovery})",
        f"clock {status.clock}",
        f"loss {number(status.loss)}",
    ]
    parts += [f"epoch {status.number}", f"{len(status.failures)} failures"]
    if status.checkpoint and status.checkpoint.manifest:
        parts.append(f"checkpoint {status.checkpoint.manifest}, {seconds(status.checkpoint.age)} old")
    return " · ".join(parts)


def problems(status: ClusterStatus) -> list[str]:
    """What is wrong, and, while there are workers, what their training waits for."""
    waits = status.waits if status.epoch and status.epoch.workers else ()
    lines = [f"[bold yellow]problem:[/] {escape(problem)}" for problem in status.problems]
    return lines + [f"[dim]waiting: {escape(wait)}[/]" for wait in waits]


def shard_table(status: ClusterStatus, processes: Processes) -> Table:
    """Servers of the newest epoch, and processes of servers that are not part of it."""
    rows: list[Sequence[object]] = [
        (
            name,
            health(name, status, processes),
            _clock(shard.clock),
            sum(table.blocks for table in shard.tables),
            shard.replicas or "",
            sum(table.loading for table in shard.tables) or "",
            output.size(sum(table.bytes for table in shard.tables)),
            shard.pushes,
            seconds(shard.saved_age),
            shard.member.address,
            *_process(name, processes),
        )
        for name, shard in sorted(status.shards.items())
    ]
    rows += [
        (name, health(name, status, processes), *[""] * 8, *_process(name, processes))
        for name in sorted(_shards(status, processes) - set(status.shards))
    ]
    counts = (">CLOCK", ">BLOCKS", ">COPIES", ">LOADING", ">BYTES", ">PUSHES", ">SAVED")
    return output.table(("SHARD", "HEALTH", *counts, "ADDRESS", ">PID", ">RESTARTS"), rows)


def worker_table(status: ClusterStatus, processes: Processes) -> Table:
    workers = status.epoch.workers if status.epoch else ()
    rows = []
    for member in workers:
        worker = status.workers.get(member.name)
        cells: Sequence[object] = ("?", "", "", "")
        if worker:
            cells = (worker.state, _clock(worker.clock), f"{worker.seconds_per_clock * 1000:.1f} ms", worker.reroutes)
        rows.append((member.name, health(member.name, status, processes), *cells, *_process(member.name, processes)))
    return output.table(("WORKER", "HEALTH", "STATE", ">CLOCK", ">PER CLOCK", ">REROUTES", ">PID", ">RESTARTS"), rows)


def coordinator_table(status: ClusterStatus, processes: Processes) -> Table:
    wanted = ("recovery", "checkpoint", "detector", "redis", "minio")
    names = [name for part in wanted for name, process in sorted(processes.items()) if process.component == part]
    rows = [(name, health(name, status, processes), *_process(name, processes)) for name in names]
    return output.table(("SERVICE", "HEALTH", ">PID", ">RESTARTS"), rows)


def health(name: str, status: ClusterStatus, processes: Processes) -> str:
    """What the detector says; else what the process table says."""
    view = status.members.get(name)
    process = processes.get(name)
    if process is not None and not process.alive:
        return f"[red]{process.state}[/]"
    if view is None:
        return f"[green]{process.state}[/]" if process else "?"
    word = detector_pb2.Health.Name(view.health).removeprefix("HEALTH_").lower()
    return f"[{HEALTH_COLOURS.get(word, 'white')}]{word}[/]"


def as_data(status: ClusterStatus, processes: Processes) -> dict[str, Any]:
    """For ``-o json``. Placement bytes and initial arrays are left out."""
    return {
        "job": status.job.name if status.job else None,
        "epoch": status.number,
        "clock": status.clock,
        "loss": status.loss,
        "failures": len(status.failures),
        "problems": status.problems,
        "waits": status.waits,
        "shards": status.shards,
        "workers": status.workers,
        "members": status.members,
        "checkpoint": status.checkpoint,
        "processes": {name: vars(process) for name, process in processes.items()},
    }


def _shards(status: ClusterStatus, processes: Processes) -> set[str]:
    members = {member.name for member in status.epoch.shards} if status.epoch else set()
    return members | {name for name, process in processes.items() if process.component == "ps"}


def _process(name: str, processes: Processes) -> tuple[object, object]:
    process = processes.get(name)
    return (process.pid or "-", process.restarts) if process else ("", "")


def _clock(clock: int) -> object:
    return "done" if clock >= DONE else clock
