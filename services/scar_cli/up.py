"""`scar up` and `scar down`: a cluster that stays until it is told to stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from scar.errors import ConfigError, DeadlineExceeded
from scar_cli.clusters import DirectTarget, running_cluster
from scar_cli.output import format_count, make_console, make_table
from scar_cli.requests import UpRequest
from scar_local import ClusterDirectory, LocalCluster, ProcessInfo
from scar_local.directory import default_directory

START_SECONDS = 90.0
STOP_SECONDS = 30.0
LOG = "up.log"  # of a detached `scar up`
REDRAW_SECONDS = 0.5
COLOURS = {
    "running": "green",
    "paused": "yellow",
    "cut": "yellow",
    "killed": "red",
    "exited": "red",
    "starting": "yellow",
}


def _command_line(request: UpRequest) -> list[str]:
    """The options of `scar up` that ask for the same, without --detach."""
    given = [
        ("--cluster", request.cluster),
        ("--shards", str(request.shard_count)),
        ("--store", request.store),
        ("--redis", request.redis),
    ]
    parts = [part for option, value in given if value for part in (option, value)]
    return [*parts, "--tls"] if request.tls else parts


def run_cluster(request: UpRequest) -> None:
    """Returns after SIGINT or SIGTERM, when everything has stopped."""
    open_page = _find_page() if request.web else None
    screen = make_console()
    with stop_signal() as stop:
        cluster = LocalCluster(
            default_directory(request.cluster),
            shards=request.shard_count,
            store=request.store or None,
            redis=request.redis or None,
            tls=request.tls,
        )
        with ExitStack() as page, _started(cluster, screen):
            _print_addresses(
                screen, request, cluster.endpoints.recovery_address, cluster.store_url, cluster.directory
            )
            target = running_cluster(request.cluster)
            if open_page is not None and target is not None:
                page.enter_context(open_page(target))
            _print_next_steps(screen, request, "Ctrl-C stops all")
            _follow_processes(screen, cluster, stop)


def _find_page() -> Callable[[DirectTarget], AbstractContextManager[None]]:
    """Its packages come with an extra, which is found missing before anything has started."""
    from scar_cli.console import cluster_page

    return cluster_page


@contextmanager
def _started(cluster: LocalCluster, screen: Console) -> Iterator[None]:
    cluster.start()
    try:
        yield
    finally:
        screen.print("stopping: one last checkpoint, then every process")
        cluster.stop()


@contextmanager
def stop_signal() -> Iterator[threading.Event]:
    """An event that Ctrl-C or SIGTERM sets; the signals mean what they meant before afterwards."""
    stop = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _print_addresses(screen: Console, request: UpRequest, recovery: str, store: str, directory: Path) -> None:
    shards = format_count(request.shard_count, "shard")
    screen.print(
        f"[bold green]up:[/] {shards}, recovery coordinator at {recovery}",
        soft_wrap=True,
    )
    screen.print(f"store {escape(store)} · logs {escape(str(directory / 'logs'))}", soft_wrap=True)


def _print_next_steps(screen: Console, request: UpRequest, end: str) -> None:
    words = (
        f"scar train FILE{request.cluster_option}",
        f"scar watch{request.cluster_option}",
        f"scar console{request.cluster_option}",
        f"scar kill ps-0{request.cluster_option}",
        end,
    )
    screen.print(f"next: {' · '.join(words)}", soft_wrap=True)


def _follow_processes(screen: Console, cluster: LocalCluster, stop: threading.Event) -> None:
    """A live table on a terminal; elsewhere a line for every change."""
    if screen.is_terminal:
        with Live(process_table(cluster.processes()), console=screen, auto_refresh=False) as live:
            while not stop.wait(REDRAW_SECONDS):
                live.update(process_table(cluster.processes()), refresh=True)
        return
    known = {process.name: process for process in cluster.processes()}
    while not stop.wait(REDRAW_SECONDS):
        for process in cluster.processes():
            if known.get(process.name) != process:
                screen.print(
                    f"{process.name}: {process.state}, pid {process.pid}, restarts {process.restarts}"
                )
            known[process.name] = process


def process_table(processes: list[ProcessInfo]) -> Table:
    rows = (
        (process.name, f"[{COLOURS[process.state]}]{process.state}[/]", process.pid or "-", process.restarts)
        for process in processes
    )
    return make_table(("NAME", "STATE", ">PID", ">RESTARTS"), rows)


def start_detached(request: UpRequest) -> None:
    """Start `scar up` in a session of its own and return when it is up.

    Raises :class:`ConfigError` with its log when it ended before that.
    """
    if request.web:
        raise ConfigError(
            "a detached cluster has no page of its own",
            f"Leave --web out, and use `scar console{request.cluster_option}` when you want to see it",
        )
    if running_cluster(request.cluster):
        raise ConfigError(f"cluster {request.cluster!r} runs already", "Use it, or stop it by `scar down`")
    home = ClusterDirectory(default_directory(request.cluster))
    with home.log(LOG) as log:
        holder = subprocess.Popen(
            [sys.executable, "-m", "scar_cli", "up", *_command_line(request)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    target = _await_cluster(request.cluster, holder, home)
    if target.state is not None:
        _print_addresses(make_console(), request, target.recovery, target.state.store, home.path)
    _print_next_steps(
        make_console(),
        request,
        f"scar down{request.cluster_option} stops process {holder.pid} and all of its own",
    )


def _await_cluster(name: str, holder: subprocess.Popen[bytes], home: ClusterDirectory) -> DirectTarget:
    """The cluster, once its holder has started it."""
    path = home.logs / LOG
    deadline = time.monotonic() + START_SECONDS
    while (target := running_cluster(name)) is None:
        if holder.poll() is not None:
            raise ConfigError(
                f"the cluster did not start: {path.read_text(errors='replace').strip()}", f"See {home.logs}"
            )
        if time.monotonic() > deadline:
            raise DeadlineExceeded("the cluster is not up yet", f"See {path}, or stop it by `scar down`")
        time.sleep(0.05)
    return target


def stop_cluster(name: str) -> None:
    """Ask the holder of the cluster to stop and wait until it has."""
    home = ClusterDirectory(default_directory(name))
    state = home.read()
    if state is None or not home.alive():
        raise ConfigError(f"no cluster {name!r} runs in {home.path}", "Nothing to stop")
    os.kill(state.pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    while home.alive():
        if time.monotonic() > deadline:
            raise DeadlineExceeded(
                f"process {state.pid} has not stopped",
                f"End it by `kill -9 {state.pid}`: its services follow",
            )
        time.sleep(0.05)
    make_console().print("stopped")
