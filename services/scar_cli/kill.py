"""`scar kill`: a signal to one process of a cluster."""

from __future__ import annotations

import os
import signal

from scar.errors import ConfigError
from scar_cli.clusters import find, find_release
from scar_cli.output import console
from scar_cli.places import Place

DONE = {
    "KILL": "[bold red]killed[/]",
    "STOP": "[bold yellow]frozen[/]",
    "CONT": "[bold green]woken[/]",
    "TERM": "[bold]asked to end[/]",
}


def run(place: Place, name: str, signal_name: str) -> None:
    """Raises :class:`ConfigError` for a name that is not there or does not run now."""
    if place.release is not None:
        from scar_kube.faults import send

        send(find_release(place.release), name, signal_name)
        return _tell(place, name, signal_name)
    processes = {process.name: process for process in find(place).processes()}
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
    return _tell(place, f"{name} (pid {process.pid})", signal_name)


def _tell(place: Place, what: str, signal_name: str) -> None:
    options = place.options()
    console().print(f"{DONE[signal_name]} {what}; see `scar watch{options}` and `scar failures{options}`", soft_wrap=True)
