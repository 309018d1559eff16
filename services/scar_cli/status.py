"""`scar status`: one look at all services."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from scar.v1.types_pb2 import JobSpec
from scar.v1.worker_pb2 import WorkerStatus
from scar_admin.status import DONE, HINDERED, ClusterStatus, ProcessInfo, health_word, traffic_rate
from scar_admin.stragglers import find_stragglers
from scar_cli import output
from scar_cli.cluster_ref import ClusterRef
from scar_cli.clusters import find_cluster
from scar_cli.keyed_tables import keyed_rows, keyed_table
from scar_cli.output import OutputFormat, format_count, format_seconds
from scar_cli.wait_reports import read_waits, wait_lines

Processes = Mapping[str, ProcessInfo]
SILENT = 3  # closed clocks without a loss that are nothing to speak of
HEALTH_COLOURS = {"alive": "green", "learning": "cyan", "suspect": "yellow", "dead": "red"}


def show_status(ref: ClusterRef, form: OutputFormat) -> None:
    target = find_cluster(ref)
    status, waits = read_waits(target)
    processes = {process.name: process for process in target.processes()}

    def text(screen: Console) -> None:
        screen.print(headline(status))
        for line in (*choice_line(status), *plan_line(status)):
            screen.print(line, soft_wrap=True)
        screen.print()
        screen.print(shard_table(status, processes))
        if keyed := keyed_rows(status):
            screen.print()
            screen.print(keyed_table(keyed))
        if status.epoch and status.epoch.workers:
            screen.print()
            screen.print(worker_table(status, processes))
        screen.print()
        screen.print(coordinator_table(status, processes))
        for problem in problem_lines(status):
            screen.print(problem, soft_wrap=True)
        for wait, stack in waits:
            if wait.text not in status.problems:
                for line in wait_lines(wait, stack):
                    screen.print(line, soft_wrap=True)

    waiting = [{**vars(wait), "stack": stack} for wait, stack in waits]
    output.print_result(form, status_document(status, processes) | {"waiting": waiting}, text)


def recovery_words(job: JobSpec) -> str:
    """A job's strategy, and where lost blocks come from when that is not the running checkpoint alone."""
    named = job.choice if job.HasField("choice") else job
    words = f"{named.recovery} from workers" if named.sources == "workers" else named.recovery
    kept = " of what they lack" if job.replicate == "missing" else ""
    words += f" with {format_count(named.replicas, 'replica')}{kept}" if named.replicas else ""
    pull = "pulls" if job.pull_slots == 1 else "pull"
    words += f" and the slots that {job.pull_slots} of them {pull}" if job.pull_slots else ""
    return f"{words}, chosen" if job.HasField("choice") else words


def headline(status: ClusterStatus) -> str:
    """Job, clock, loss, epoch and checkpoint in one line."""
    if status.job is None:
        return "[bold]no job yet[/]; start one by `scar train FILE`"
    recovery = recovery_words(status.job)
    parts = [
        f"[bold]job {status.job.name}[/] ({status.job.consistency}, {recovery})",
        f"clock {status.clock}",
        loss_text(status),
    ]
    parts += [f"epoch {status.number}", format_count(len(status.failures), "failure")]
    if status.finished is not None:
        parts[3:3] = [f"[bold green]finished[/], saved as manifest {status.finished.manifest}"]
    if status.checkpoint and status.checkpoint.manifest:
        parts.append(f"checkpoint {status.checkpoint.manifest}, {format_seconds(status.checkpoint.age)} old")
    return " · ".join(parts)


def loss_text(status: ClusterStatus) -> str:
    """The newest loss, with the clock that it is of where later ones have none."""
    text = f"loss {output.format_loss(status.loss, status.fraction)}"
    closed = status.clock - 1
    if 0 <= status.loss_clock < closed - SILENT:
        text += f" of clock {status.loss_clock}, later ones have none"
    metrics = status.newest_metrics
    return ", ".join([text, *(f"{escape(name)} {output.format_number(metrics[name])}" for name in metrics)])


def problem_lines(status: ClusterStatus) -> list[str]:
    """What is wrong, and, while there are workers, what their training waits for."""
    waits = status.waits if status.epoch and status.epoch.workers else ()
    lines = [f"[bold yellow]problem:[/] {escape(problem)}" for problem in status.problems]
    return lines + [f"[dim]waiting: {escape(wait)}[/]" for wait in waits]


def plan_line(status: ClusterStatus) -> list[str]:
    """What the coordinator has chosen for rounds, and why; nothing where the job's own numbers hold."""
    if status.checkpoint is None or not status.checkpoint.HasField("plan"):
        return []
    plan = status.checkpoint.plan
    clocks = format_count(plan.every, "clock")
    return [
        f"[dim]rounds: {100 * plan.fraction:.3g} % of the blocks every {clocks}: {escape(plan.reason)}[/]"
    ]


def choice_line(status: ClusterStatus) -> list[str]:
    """Why the job has its strategy; nothing where it names one."""
    reason = status.job.choice.reason if status.job is not None else ""
    return [f"[dim]recovery: {escape(reason)}[/]"] if reason else []


def shard_table(status: ClusterStatus, processes: Processes) -> Table:
    """Servers of the newest epoch, and processes of servers that are not part of it."""
    rows: list[Sequence[object]] = [
        (
            name,
            health_text(name, status, processes),
            _clock_cell(shard.clock),
            sum(table.blocks for table in shard.tables),
            shard.replicas or "",
            sum(table.loading for table in shard.tables) or "",
            output.format_size(sum(table.bytes for table in shard.tables)),
            _traffic_cell(traffic_rate(shard)),
            format_seconds(shard.saved_age),
            shard.member.address,
            *_process_cells(name, processes),
        )
        for name, shard in sorted(status.shards.items())
    ]
    rows += [
        (name, health_text(name, status, processes), *[""] * 8, *_process_cells(name, processes))
        for name in sorted(_shard_names(status, processes) - set(status.shards))
    ]
    counts = (">CLOCK", ">BLOCKS", ">COPIES", ">LOADING", ">BYTES", ">TRAFFIC", ">SAVED")
    return output.make_table(("SHARD", "HEALTH", *counts, "ADDRESS", ">PID", ">RESTARTS"), rows)


def worker_table(status: ClusterStatus, processes: Processes) -> Table:
    workers = status.epoch.workers if status.epoch else ()
    slow = find_stragglers(status.workers)
    rows = []
    for member in workers:
        worker = status.workers.get(member.name)
        cells: Sequence[object] = ("?", "", "", "", "")
        if worker:
            cells = (
                f"{worker.state}, [yellow]straggler[/]" if member.name in slow else worker.state,
                _clock_cell(worker.clock),
                f"{worker.seconds_per_clock * 1000:.1f} ms",
                _split_cell(worker),
                worker.reroutes,
            )
        rows.append(
            (
                member.name,
                health_text(member.name, status, processes),
                *cells,
                *_process_cells(member.name, processes),
            )
        )
    return output.make_table(
        (
            *("WORKER", "HEALTH", "STATE", ">CLOCK", ">PER CLOCK", ">PULL+COMPUTE+PUSH+WAIT"),
            *(">REROUTES", ">PID", ">RESTARTS"),
        ),
        rows,
    )


def coordinator_table(status: ClusterStatus, processes: Processes) -> Table:
    wanted = ("recovery", "checkpoint", "detector", "redis", "minio")
    names = [
        name for part in wanted for name, process in sorted(processes.items()) if process.component == part
    ]
    rows = [(name, health_text(name, status, processes), *_process_cells(name, processes)) for name in names]
    return output.make_table(("SERVICE", "HEALTH", ">PID", ">RESTARTS"), rows)


def health_text(name: str, status: ClusterStatus, processes: Processes) -> str:
    """What the detector says; else what the process table says."""
    process = processes.get(name)
    word = health_word(name, status, process)
    if word == "?":
        return word
    if process is not None and not process.alive:
        return f"[red]{word}[/]"
    colour = "green" if name not in status.members else HEALTH_COLOURS.get(word, "white")
    hindered = HINDERED.get(process.state, "") if process is not None and word != process.state else ""
    return f"[{colour}]{word}[/]" + (hindered and f", {hindered}")


def status_document(status: ClusterStatus, processes: Processes) -> dict[str, Any]:
    """For ``-o json``. Placement bytes and initial arrays are left out."""
    return {
        "job": status.job.name if status.job else None,
        "strategy": status.job.choice if status.job and status.job.HasField("choice") else None,
        "finished": status.finished,
        "epoch": status.number,
        "clock": status.clock,
        "loss": status.loss,
        "loss_clock": status.loss_clock if status.losses else None,
        "loss_fraction": status.fraction if status.losses else None,
        "metrics": status.newest_metrics,
        "failures": len(status.failures),
        "problems": status.problems,
        "waits": status.waits,
        "shards": status.shards,
        "keys": keyed_rows(status),
        "workers": status.workers,
        "stragglers": sorted(find_stragglers(status.workers)),
        "members": status.members,
        "checkpoint": status.checkpoint,
        "processes": {name: vars(process) for name, process in processes.items()},
    }


def _shard_names(status: ClusterStatus, processes: Processes) -> set[str]:
    members = {member.name for member in status.epoch.shards} if status.epoch else set()
    return members | {name for name, process in processes.items() if process.component == "ps"}


def _traffic_cell(rate: float) -> str:
    return f"{output.format_size(rate)}/s" if rate >= 0 else ""


def _process_cells(name: str, processes: Processes) -> tuple[object, object]:
    process = processes.get(name)
    return (process.pid or "-", process.restarts) if process else ("", "")


def _split_cell(worker: WorkerStatus) -> str:
    """In milliseconds, in the order of the column's name."""
    split = worker.per_clock
    return "+".join(f"{1000 * part:.1f}" for part in (split.pull, split.compute, split.push, split.wait))


def _clock_cell(clock: int) -> object:
    return "done" if clock >= DONE else clock
