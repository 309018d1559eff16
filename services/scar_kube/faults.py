"""Signals to the processes of a release, from inside their pods: so a kill is a kill, without Kubernetes'
help or notice.
"""

from __future__ import annotations

from scar.errors import ConfigError
from scar_kube.pods import Pod
from scar_kube.release import Release

BEGIN_SECONDS = 0.2  # until the shell that starts a freeze has ended, which would be frozen, too


def send_signal(release: Release, name: str, signal: str) -> None:
    """Send KILL, STOP, CONT or TERM to the process in pod ``name``; all but the pod's own pid 1, which passes
    signals on.

    Raises :class:`ConfigError` for a pod that is not there or does not run.
    """
    _run_script(release, running_pod(release, name), f"kill -{signal} -1")


def freeze_pod(release: Release, name: str, seconds: float) -> None:
    """Stop the process in pod ``name``; returns at once. A shell in the pod wakes it, whatever becomes of us.

    Raises as :func:`send_signal`.
    """
    freeze = f"sleep {BEGIN_SECONDS}; kill -STOP -1; sleep {seconds:g}; kill -CONT -1"
    _run_script(release, running_pod(release, name), f"({freeze}) >/dev/null 2>&1 </dev/null &")


def running_pod(release: Release, name: str) -> Pod:
    """By its name, or by its member's. Raises :class:`ConfigError` when it is not there or does not run."""
    pods = {pod.name: pod for pod in release.pods()}
    pod = pods.get(name) or pods.get(f"{release.fullname}-{name}")
    if pod is None:
        raise ConfigError(f"{release} has no pod {name!r}", f"Choose one of {', '.join(sorted(pods))}")
    if not pod.running:
        raise ConfigError(
            f"{pod.name} does not run at the moment ({pod.state})",
            "See `scar status`; it may be restarting",
        )
    return pod


def _run_script(release: Release, pod: Pod, script: str) -> None:
    release.api.execute(release.namespace, pod.name, pod.component, ["sh", "-c", script])
