"""What breaks members of a release. Signals come from inside their pods: so a kill is a kill, without
Kubernetes' help or notice.
"""

from __future__ import annotations

from scar.errors import ConfigError
from scar_kube.pod_cut import PodCut, begin_pod_cut, pod_cut_problem
from scar_kube.pods import Pod
from scar_kube.release import Release

BEGIN_SECONDS = 0.2  # until the shell that starts a freeze has ended, which would be frozen, too


def send_signal(release: Release, name: str, signal: str) -> None:
    """Send KILL, STOP, CONT or TERM to the process in pod ``name``; all but the pod's own pid 1, which passes
    signals on.

    Raises :class:`ConfigError` for a pod that is not there or does not run.
    """
    _run_script(release, running_pod(release, name), f"kill -{signal} -1")


def freeze_pod(release: Release, name: str, seconds: float) -> str:
    """Stop the process in pod ``name``; returns at once the pod. A shell in it wakes it, whatever becomes of
    us. Raises as :func:`send_signal`.
    """
    pod = running_pod(release, name)
    freeze = f"sleep {BEGIN_SECONDS}; kill -STOP -1; sleep {seconds:g}; kill -CONT -1"
    _run_script(release, pod, f"({freeze}) >/dev/null 2>&1 </dev/null &")
    return pod.name


def cut_pod(release: Release, name: str, seconds: float) -> PodCut:
    """Begin to cut pod ``name`` off from the network. Raises as :func:`send_signal`, and where the cluster
    does not let it be done.
    """
    pod = running_pod(release, name)
    try:
        return begin_pod_cut(release.api, release.namespace, pod.name, release.shard_container(), seconds)
    except KeyError as error:
        raise _not_running(pod) from error


def signal_problem(release: Release) -> str:
    """Why pods of this release can be neither killed nor frozen; empty: they can."""
    return release.api.refused_right(release.namespace, "create", "pods/exec")


def cut_problem(release: Release) -> str:
    """Why pods of this release cannot be cut off; empty: nothing is known that forbids it."""
    pod = next((pod for pod in release.pods() if pod.component == "ps"), None)
    if pod is None:
        return "no shard runs"
    return pod_cut_problem(release.api, release.namespace, pod.name, release.shard_container())


def running_pod(release: Release, name: str) -> Pod:
    """By its name, or by its member's. Raises :class:`ConfigError` when it is not there or does not run."""
    pods = {pod.name: pod for pod in release.pods()}
    pod = pods.get(name) or pods.get(f"{release.fullname}-{name}")
    if pod is None:
        raise ConfigError(f"{release} has no pod {name!r}", f"Choose one of {', '.join(sorted(pods))}")
    if not pod.process().alive:
        raise _not_running(pod)
    return pod


def _not_running(pod: Pod) -> ConfigError:
    return ConfigError(
        f"{pod.name} does not run at the moment ({pod.state})", "See `scar status`; it may be restarting"
    )


def _run_script(release: Release, pod: Pod, script: str) -> None:
    release.api.execute(release.namespace, pod.name, pod.component, ["sh", "-c", script])
