"""`scar up` and `scar down`: a cluster that stays until it is told to stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.live import Live
from rich.table import Table

from scar.errors import ConfigError, DeadlineExceeded
from scar_cli.clusters import running
from scar_cli.output import console, table
from scar_local import ClusterDirectory, LocalCluster, ProcessInfo
from scar_local.directory import default_directory

START_SECONDS = 90.0
STOP_SECONDS = 30.0
REDRAW_SECONDS = 0.5
COLOURS = {"running": "green", "paused": "yellow", "killed": "red", "exited": "red", "starting": "yellow"}


@dataclass(frozen=True)
class Plan:
    """What `scar up` was asked for."""

    cluster: str
    shards: int
    store: str = ""
    redis: str = ""

    def arguments(self) -> list[str]:
        given = [("--cluster", self.cluster), ("--shards", str(self.shards)), ("--store", self.store), ("--redis", self.redis)]
        return [part for option, value in given if value for part in (option, value)]


def run(plan: Plan) -> None:
    """Returns after SIGINT or SIGTERM, when everything has stopped."""
    screen = console()
    with stop_signal() as stop:
        cluster = LocalCluster(
            default_directory(plan.cluster), shards=plan.shards, store=plan.store or None, redis=plan.redis or None
        )
        cluster.start()
        try:
            _introduce(screen, plan, cluster)
            _follow(screen, cluster, stop)
        finally:
            screen.print("stopping: one last checkpoint, then every process")
            cluster.stop()


@contextmanager
def stop_signal() -> Iterator[threading.Event]:
    """An event that Ctrl-C or SIGTERM sets; the signals mean what they meant before afterwards."""
    stop = threading.Event()
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _introduce(screen: Console, plan: Plan, cluster: LocalCluster) -> None:
    option = "" if plan.cluster == "local" else f" --cluster {plan.cluster}"
    screen.print(f"[bold green]up:[/] {plan.shards} shards, recovery coordinator at {cluster.recovery_address}")
    screen.print(f"store {cluster.store_url} · logs {cluster.directory / 'logs'}", soft_wrap=True)
    screen.print(f"next: scar train FILE{option} · scar watch{option} · scar kill ps-0{option} · Ctrl-C stops all")


def _follow(screen: Console, cluster: LocalCluster, stop: threading.Event) -> None:
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
                screen.print(f"{process.name}: {process.state}, pid {process.pid}, restarts {process.restarts}")
            known[process.name] = process


def process_table(processes: list[ProcessInfo]) -> Table:
    rows = (
        (process.name, f"[{COLOURS[process.state]}]{process.state}[/]", process.pid or "-", process.restarts)
        for process in processes
    )
    return table(("NAME", "STATE", ">PID", ">RESTARTS"), rows)


def run_detached(plan: Plan) -> None:
    """Start `scar up` in a session of its own and return when it is up; :class:`ConfigError` says why it ended before that."""
    if running(plan.cluster):
        raise ConfigError(f"cluster {plan.cluster!r} runs already", "Use it, or stop it by `scar down`")
    home = default_directory(plan.cluster).absolute()
    (home / "logs").mkdir(parents=True, exist_ok=True)
    path = home / "logs" / "up.log"
    with path.open("wb") as log:
        holder = subprocess.Popen(
            [sys.executable, "-m", "scar_cli", "up", *plan.arguments()],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    deadline = time.monotonic() + START_SECONDS
    while running(plan.cluster) is None:
        if holder.poll() is not None:
            raise ConfigError(f"the cluster did not start: {path.read_text(errors='replace').strip()}", f"See {home / 'logs'}")
        if time.monotonic() > deadline:
            raise DeadlineExceeded("the cluster is not up yet", f"See {path}, or stop it by `scar down`")
        time.sleep(0.05)
    console().print(f"[bold green]up:[/] process {holder.pid}, stop it by `scar down`")


def stop(name: str) -> None:
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
                f"process {state.pid} has not stopped", f"End it by `kill -9 {state.pid}`: its services follow"
            )
        time.sleep(0.05)
    console().print("stopped")
