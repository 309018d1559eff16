"""`scar kill`: a signal to one process of a cluster."""

from __future__ import annotations

import os
import signal

from scar.errors import ConfigError
from scar_admin.status import ProcessInfo
from scar_cli.cluster_ref import ClusterRef
from scar_cli.clusters import ClusterTarget, find_cluster, find_release
from scar_cli.output import make_console

DONE = {
    "KILL": "[bold red]killed[/]",
    "STOP": "[bold yellow]frozen[/]",
    "CONT": "[bold green]woken[/]",
    "TERM": "[bold]asked to end[/]",
}


def kill_process(ref: ClusterRef, name: str, signal_name: str) -> None:
    """Raises :class:`ConfigError` for a name that is not there or does not run now."""
    if ref.release is not None:
        from scar_kube.faults import send_signal

        send_signal(find_release(ref.release), name, signal_name)
        return _print_done(ref, name, signal_name)
    return _print_done(ref, send_local_signal(find_cluster(ref), name, signal_name), signal_name)


def send_local_signal(target: ClusterTarget, name: str, signal_name: str) -> str:
    """To the group of a process of this machine; returns its name with its pid.

    Raises :class:`ConfigError` for a name that is not there or does not run now.
    """
    process = running_process(target, name)
    try:
        os.killpg(process.pid, signal.Signals[f"SIG{signal_name}"])
    except ProcessLookupError as error:
        raise _not_running(process) from error
    return f"{name} (pid {process.pid})"


def running_process(target: ClusterTarget, name: str) -> ProcessInfo:
    """Raises :class:`ConfigError` for a name that is not there or does not run now."""
    processes = {process.name: process for process in target.processes()}
    if name not in processes:
        raise ConfigError(f"there is no process {name!r}", f"Choose one of {', '.join(sorted(processes))}")
    if not processes[name].alive:
        raise _not_running(processes[name])
    return processes[name]


def _not_running(process: ProcessInfo) -> ConfigError:
    return ConfigError(
        f"{process.name} does not run at the moment ({process.state})",
        "See `scar status`; it may be restarting",
    )


def _print_done(ref: ClusterRef, what: str, signal_name: str) -> None:
    options = ref.options()
    make_console().print(
        f"{DONE[signal_name]} {what}; see `scar watch{options}` and `scar failures{options}`", soft_wrap=True
    )
