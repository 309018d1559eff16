"""`scar kill`: a signal to one process of a cluster on this machine."""

from __future__ import annotations

import os
import signal

from scar.errors import ConfigError
from scar_cli.clusters import find
from scar_cli.output import console

DONE = {
    "KILL": "[bold red]killed[/]",
    "STOP": "[bold yellow]frozen[/]",
    "CONT": "[bold green]woken[/]",
    "TERM": "[bold]asked to end[/]",
}


def run(cluster: str, name: str, signal_name: str) -> None:
    """Raises :class:`ConfigError` for a name that is not there or does not run now."""
    processes = {process.name: process for process in find(cluster).processes()}
    if name not in processes:
        raise ConfigError(f"there is no process {name!r}", f"Choose one of {', '.join(sorted(processes))}")
    process = processes[name]
    gone = ConfigError(f"{name} does not run at the moment ({process.state})", "See `scar status`; it may be on its way back")
    if not process.alive:
        raise gone
    try:
        os.killpg(process.pid, signal.Signals[f"SIG{signal_name}"])
    except ProcessLookupError as error:
        raise gone from error
    console().print(f"{DONE[signal_name]} {name} (pid {process.pid}); see `scar watch` and `scar failures`")
