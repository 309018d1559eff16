"""Signals to the processes of a release, from inside their pods: so a kill is a kill, without Kubernetes'
help or notice.
"""

from __future__ import annotations

from scar.errors import ConfigError
from scar_kube.release import Release


def send_signal(release: Release, name: str, signal: str) -> None:
    """Send KILL, STOP, CONT or TERM to the process in pod ``name``; all but the pod's own pid 1, which passes
    signals on.

    Raises :class:`ConfigError` for a pod that is not there or does not run.
    """
    pods = {pod.name: pod for pod in release.pods()}
    pod = pods.get(name) or pods.get(f"{release.fullname}-{name}")
    if pod is None:
        raise ConfigError(f"{release} has no pod {name!r}", f"Choose one of {', '.join(sorted(pods))}")
    if not pod.running:
        raise ConfigError(
            f"{pod.name} does not run at the moment ({pod.state})",
            "See `scar status`; it may be restarting",
        )
    release.api.execute(release.namespace, pod.name, pod.component, ["sh", "-c", f"kill -{signal} -1"])
