"""`scar freeze`: a process, here or in a pod, stands still for some seconds, and is woken in any case."""

from __future__ import annotations

import subprocess
import sys

from scar_cli.cluster_ref import ClusterRef
from scar_cli.clusters import ClusterTarget, find_cluster, find_release
from scar_cli.kill import running_process, send_local_signal
from scar_cli.output import make_console

WAKE = """
import os, signal, sys, time
time.sleep(float(sys.argv[1]))
os.killpg(int(sys.argv[2]), signal.SIGCONT)
"""


def freeze_process(ref: ClusterRef, name: str, seconds: float) -> None:
    """Raises :class:`ConfigError` for a name that is not there or does not run now."""
    if ref.release is not None:
        from scar_kube.faults import freeze_pod

        what = freeze_pod(find_release(ref.release), name, seconds)
    else:
        what = freeze_local(find_cluster(ref), name, seconds)
    make_console().print(
        f"[bold yellow]frozen[/] {what} for {seconds:g} s; see `scar watch{ref.options()}`", soft_wrap=True
    )


def freeze_local(target: ClusterTarget, name: str, seconds: float) -> str:
    """SIGSTOP now, SIGCONT after ``seconds``; returns at once its name with its pid.

    A process of its own wakes it, begun before the stop: the end of the caller leaves nobody frozen.
    Raises :class:`ConfigError` for a name that is not there or does not run now.
    """
    process = running_process(target, name)
    quiet = subprocess.DEVNULL
    subprocess.Popen(
        [sys.executable, "-c", WAKE, str(seconds), str(process.pid)],
        stdin=quiet,
        stdout=quiet,
        stderr=quiet,
        start_new_session=True,
    )
    return send_local_signal(target, name, "STOP")
