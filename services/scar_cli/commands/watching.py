"""`scar status`, `watch`, `console`, `kill`, `freeze`, `cut`, `failures`: look at a cluster, and break it."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from scar_cli.cluster_ref import ClusterRef
from scar_cli.options import JobName, OutputOption, StoreUrl, with_cluster
from scar_cli.output import OutputFormat


class KillSignal(StrEnum):
    """What `scar kill` can send."""

    KILL = "KILL"
    STOP = "STOP"
    CONT = "CONT"
    TERM = "TERM"


@with_cluster(recovery=True)
def show_status(ref: ClusterRef, output: OutputOption = OutputFormat.text) -> None:
    """One look at a cluster: job, clock, loss, every service, and what it waits for."""
    from scar_cli.status import show_status as show

    show(ref, output)


@with_cluster(recovery=True)
def watch_cluster(
    ref: ClusterRef,
    interval: Annotated[
        float, typer.Option(min=0.05, metavar="SECONDS", help="Time between two looks.")
    ] = 0.5,
    web: Annotated[
        bool, typer.Option("--web", help="In your browser instead, by the page of `scar console`.")
    ] = False,
) -> None:
    """Loss curve, shards, workers and failures as they happen, until Ctrl-C. Without a terminal: a line at
    every change. In a browser: [bold]--web[/].
    """
    if web:
        from scar_cli.console import ConsoleOptions
        from scar_cli.console import run_console as run

        return run(ref, ConsoleOptions(interval=interval, browse=True))
    from scar_cli.watch import watch_cluster as watch

    watch(ref, interval)
    return None


@with_cluster(recovery=True)
def serve_console(
    ref: ClusterRef,
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="PORT", help="Where it listens; 0: any free port.")
    ] = 0,
    interval: Annotated[
        float, typer.Option(min=0.05, metavar="SECONDS", help="Time between two looks.")
    ] = 0.5,
    store: Annotated[
        str,
        typer.Option(
            "--store", metavar="URL", help="Show the runs of this store, finished or dead, side by side."
        ),
    ] = "",
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The token of the URL, not printed then; default: a new one."),
    ] = None,
    pod_logs: Annotated[
        str,
        typer.Option(
            metavar="RELEASE", help="In a pod of this release: show its logs, by the pod's own account."
        ),
    ] = "",
) -> None:
    """The same in a browser, on 127.0.0.1: loss, shards, workers, each failure by its phases, and on a local
    cluster buttons that break. Prints the URL; nobody without it sees the page.

    With [bold]--store[/]: how the runs of a store went, after their end.
    """
    from scar_cli.console import ConsoleOptions
    from scar_cli.console import run_console as run

    run(ref, ConsoleOptions(port, interval, store, token_file, pod_logs))


@with_cluster()
def kill_process(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="A process, as `scar status` lists it: ps-0, worker-1, recovery-0."
        ),
    ],
    ref: ClusterRef,
    signal: Annotated[
        KillSignal,
        typer.Option(help="KILL: it dies at once. STOP/CONT: freeze/wake. TERM: it may clean up."),
    ] = KillSignal.KILL,
) -> None:
    """Break something on purpose and watch it heal. On Kubernetes: a signal to the process in that pod.

    Examples: [bold]scar kill ps-0[/] · [bold]scar kill ps-1 --signal STOP[/], later [bold]scar kill ps-1
    --signal CONT[/]
    """
    from scar_cli.kill import kill_process as kill

    kill(ref, name, signal.value)


@with_cluster()
def freeze_process(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A process, as `scar status` lists it.")],
    ref: ClusterRef,
    seconds: Annotated[
        float, typer.Option(min=0.1, max=600, metavar="SECONDS", help="After which it is woken.")
    ] = 5.0,
) -> None:
    """Let a process stand still for some seconds: it keeps its connections and answers nothing. It is woken
    even if this command is killed.
    """
    from scar_cli.freeze import freeze_process as freeze

    freeze(ref, name, seconds)


@with_cluster()
def cut_process(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A process, as `scar status` lists it.")],
    ref: ClusterRef,
    seconds: Annotated[
        float, typer.Option(min=0.5, max=600, metavar="SECONDS", help="After which it is reached again.")
    ] = 5.0,
) -> None:
    """Cut a process, or on Kubernetes a pod, off from the network for some seconds: it lives and goes on, but
    nothing reaches it, nor does what it sends reach others of the cluster. No connection is closed. On Linux.
    """
    from scar_cli.cut import cut_process as cut

    cut(ref, name, seconds)


@with_cluster(recovery=True)
def show_failures(
    ref: ClusterRef, job: JobName = "", store: StoreUrl = "", output: OutputOption = OutputFormat.text
) -> None:
    """The ledger: for each failure what was lost, where it came back from, and the seconds of every phase.

    Of the cluster that runs; when none does, as the store has it.
    """
    from scar_cli.failures import show_failures as show

    show(ref, job, store, output)
