"""Cuts a pod off from the network for some seconds, by a container that joins it and drops every packet.

It runs the image of the release as :mod:`scar_kube.nftables`, in the network namespace of the pod, and ends
by itself, whatever becomes of who asked. The pod's own container goes on, and its connections stay open.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from typing import Any

from scar.errors import ConfigError, DeadlineExceeded
from scar_kube.api import Api
from scar_kube.pods import CUT, SIGNALLED
from scar_kube.settings import Container

MOST = 100  # of one pod: Kubernetes keeps each container that joined until the pod is deleted
START_SECONDS = 60.0  # for the container to start, where the node has the image
LOOK = 0.3  # seconds between two looks at it
ALLOWED = (
    "It takes the right to patch pods/ephemeralcontainers, and a namespace whose Pod Security level is"
    " privileged; `scar freeze` takes neither"
)


@dataclass(frozen=True)
class PodCut:
    """One that was asked for. ``container``: that makes it. ``seconds``: from the container's start."""

    api: Api
    namespace: str
    pod: str
    container: str
    seconds: float

    def wait(self) -> None:
        """Until it is over; a pod that is gone needs none.

        Raises :class:`ConfigError` when no packet was dropped, :class:`DeadlineExceeded` when the container
        does not start or end.
        """
        deadline = time.monotonic() + START_SECONDS + self.seconds
        while not self._over():
            if time.monotonic() > deadline:
                raise DeadlineExceeded(
                    f"container {self.container} of pod {self.pod} has not ended",
                    f"See `kubectl describe pod {self.pod} -n {self.namespace}`; it may yet cut the pod off",
                )
            time.sleep(LOOK)

    def _over(self) -> bool:
        found = self.api.ask(
            f"look at pod {self.pod}",
            self.api.core.list_namespaced_pod,
            self.namespace,
            field_selector=f"metadata.name={self.pod}",
        ).items
        asked = {one.name for pod in found for one in pod.spec.ephemeral_containers or ()}
        if self.container not in asked:
            return True  # another pod has its name now, or none
        joined = found[0].status.ephemeral_container_statuses or ()
        ended = next((one.state.terminated for one in joined if one.name == self.container), None)
        if ended is not None and 0 < ended.exit_code < SIGNALLED:
            raise ConfigError(
                f"pod {self.pod} was not cut off: {(ended.message or ended.reason or '').strip()}",
                "The kernel of its node, or its sandbox, cannot do it; use `scar freeze`",
            )
        return ended is not None


def begin_pod_cut(api: Api, namespace: str, pod: str, image: Container, seconds: float) -> PodCut:
    """``image``: a container whose image has this module.

    Raises :class:`ConfigError` for what :func:`pod_cut_problem` tells, and for a pod that was cut off too
    often; :class:`KeyError` when there is no such pod.
    """
    name = f"{CUT}{secrets.token_hex(3)}"
    made = _join_pod(api, namespace, pod, _cutting_container(name, image, seconds), dry_run="All")
    if len(made.spec.ephemeral_containers) > MOST:
        raise ConfigError(
            f"pod {pod} was cut off {MOST} times, and keeps a container of each",
            f"Take a new one: kubectl delete pod {pod} -n {namespace}",
        )
    _join_pod(api, namespace, pod, _cutting_container(name, image, seconds))
    return PodCut(api, namespace, pod, name, seconds)


def pod_cut_problem(api: Api, namespace: str, pod: str, image: Container) -> str:
    """Why this pod cannot be cut off; empty: nothing is known that forbids it. Nothing is changed."""
    if refused := api.refused_right(namespace, "patch", "pods/ephemeralcontainers"):
        return refused
    try:
        _join_pod(api, namespace, pod, _cutting_container(f"{CUT}try", image, 1.0), dry_run="All")
    except ConfigError as error:
        return error.message
    except KeyError:
        return f"there is no pod {pod}"
    return ""


def _join_pod(api: Api, namespace: str, pod: str, container: dict[str, Any], **options: str) -> Any:
    try:
        return api.ask(
            f"let a container with NET_ADMIN join pod {pod}",
            api.core.patch_namespaced_pod_ephemeralcontainers,
            pod,
            namespace,
            {"spec": {"ephemeralContainers": [container]}},
            **options,
        )
    except ConfigError as error:
        raise ConfigError(error.message, ALLOWED) from error


def _cutting_container(name: str, image: Container, seconds: float) -> dict[str, Any]:
    """Root, since others keep no capability; of all that root may it has one."""
    return {
        "name": name,
        "image": image.image,
        "imagePullPolicy": image.image_pull_policy,
        "args": ["python", "-m", "scar_kube.nftables", f"{seconds:g}"],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "runAsUser": 0,
            "runAsGroup": 0,
            "runAsNonRoot": False,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN"]},
        },
    }
